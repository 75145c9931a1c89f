// How reductions down columns are cut up: into blocks of rows by blocks of columns.
#pragma once
#include "types.h"

namespace stitch {

constexpr i64 kBlockColumns = 4096;
constexpr i64 kBlockElements = 32768;           // half of them may be in L1, all in L2
constexpr i64 kFewestRows = 16, kMostRows = 128;  // a lane of f32 adds up that many, f64 the rest
constexpr i64 kFewestJoined = 2;                  // rows of a block; one alone would load and store each sum once more

constexpr i64 kCached = 1 << 20;       // bytes: what is larger does not come from the caches of one core
constexpr i64 kFirstCache = 32 << 10;  // bytes: where a row and its sums are more, the sums come from the second one
constexpr i64 kFewRows = 4;            // that share a load and a store of such sums: more are too many streams at a time

struct Range {
  i64 begin, end;
};

// Calls `body` for some rows at a time, at least once.
template <class Body>
STITCH_INLINE void for_some_rows(Range rows, i64 some, Body body) {
  i64 begin = rows.begin;
  do {
    const i64 end = begin + some;
    body(Range{begin, end < rows.end ? end : rows.end});
    begin = end;
  } while (begin < rows.end);
}

STITCH_INLINE Range block_range(i64 block, i64 size, i64 length) {
  const i64 begin = block * size;
  return {begin, begin + size < length ? begin + size : length};
}

// Follows from the shape alone, so the same partial results are added up on any number of threads.
struct Columns {
  i64 rows;  // how often there are such columns: all outer axes but the last
  i64 columns, length, rows_of_block, blocks, column_blocks;
  i64 some_rows;                 // that a step goes down before the next: all of a block, a few, or one
  i64 part_columns, part_bytes;  // one unit's partial results
  char* parts;

  // Rows that go through both of two joined nests at a time: so many that the second finds all of them in L2.
  STITCH_MEMBER i64 joined_rows() const {
    const i64 fitting = kBlockElements / (columns < 1 ? 1 : columns);
    return fitting < kFewestJoined ? kFewestJoined : fitting < rows_of_block ? fitting : rows_of_block;
  }

  STITCH_MEMBER i64 units() const { return rows * column_blocks; }
  STITCH_MEMBER Range columns_of(i64 unit) const { return block_range(unit % column_blocks, kBlockColumns, columns); }
  STITCH_MEMBER Range rows_of(i64 block) const { return block_range(block, rows_of_block, length); }
  STITCH_MEMBER char* parts_of(i64 unit) const { return parts + unit * blocks * part_bytes; }
};

// columns: neighbours in memory; length: of what is reduced, `depth` elements deep; lanes: of a step; part_size: bytes a
// column; element_bytes: what passes through memory for each element.
STITCH_INLINE void cut(Columns& c, i64 rows, i64 columns, i64 length, i64 depth, i64 lanes, i64 part_size,
                       i64 element_bytes) {
  const i64 wide = columns < kBlockColumns ? columns : kBlockColumns;
  const i64 fitting = kBlockElements / (wide * depth < 1 ? 1 : wide * depth);
  c.rows = rows;
  c.columns = columns;
  c.length = length;
  c.rows_of_block = fitting < kFewestRows ? kFewestRows : fitting > kMostRows ? kMostRows : fitting;
  c.blocks = length <= c.rows_of_block ? 1 : (length + c.rows_of_block - 1) / c.rows_of_block;  // of no rows, too
  // Down rows that are one step wide, and in the cache, a step keeps its sums in registers. Elsewhere whole rows are
  // read, for the prefetcher, or a few beside each other.
  const bool is_near = wide <= lanes || rows * columns * length * depth * element_bytes <= kCached;
  const bool is_wide = wide * (depth * element_bytes + part_size) > kFirstCache;
  c.some_rows = is_near ? c.rows_of_block : is_wide ? kFewRows : 1;
  c.column_blocks = (columns + kBlockColumns - 1) / kBlockColumns;
  c.part_columns = (wide + 63) / 64 * 64;
  c.part_bytes = c.part_columns * part_size;
}

}  // namespace stitch
