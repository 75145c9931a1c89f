// Where threads meet: the barrier of a block, and what the lanes of a warp do together.
//
// Whoever comes last computes everybody's result, and wakes the others. So no lane can overtake another and spoil what
// that one is still to read.
#include <cstdio>
#include <cstring>

#include "failure.h"
#include "launch_state.h"
#include "sanitizer.h"

namespace stitch_emulator {

namespace {

const char* NameOf(Vote vote) {
  switch (vote) {
    case Vote::kSync: return "__syncwarp";
    case Vote::kShuffle: return "a shuffle";
    case Vote::kBallot: return "__ballot_sync";
    case Vote::kAny: return "__any_sync";
    case Vote::kAll: return "__all_sync";
    case Vote::kBlockCount: return "__syncthreads_count";
    case Vote::kBlockAnd: return "__syncthreads_and";
    case Vote::kBlockOr: return "__syncthreads_or";
    case Vote::kBlockSync: return "__syncthreads";
  }
  return "";
}

bool SamePlace(const Site& a, const Site& b) {
  return a.line == b.line && (a.file == b.file || std::strcmp(a.file, b.file) == 0);
}

std::string Hex(unsigned mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

int Result(Vote vote, const Block& block) {
  switch (vote) {
    case Vote::kBlockCount: return block.count;
    case Vote::kBlockAnd: return block.count == static_cast<int>(block.size);
    case Vote::kBlockOr: return block.count != 0;
    default: return 0;
  }
}

// ---- Lanes of a warp ---------------------------------------------------------------------------------------

Thread& Lane(const Thread& me, unsigned lane) { return me.block->threads[me.warp * 32 + lane]; }

// Whether `me` may arrive. All but the last condition are those of the mask.
bool MayArrive(const Thread& me, const Warp& warp, const Meeting& meeting, Vote vote, unsigned mask, Site site) {
  const bool begun = meeting.arrived != 0 && meeting.mask == mask;
  if ((mask >> me.lane & 1) == 0 || (mask & ~warp.alive) != 0) return false;
  if (!begun) return (warp.expected & mask) == 0;
  return meeting.vote == vote && SamePlace(meeting.site, site);
}

// Says why `me` may not.
void Refuse(const Thread& me, const Warp& warp, const Meeting& meeting, Vote vote, unsigned mask, Site site) {
  const std::string here = Name(me) + " in " + NameOf(vote) + " at " + Name(site);
  if ((mask >> me.lane & 1) == 0) {
    Fail("divergence", here + ": its own lane " + std::to_string(me.lane) + " is not in the mask " + Hex(mask), &me);
  }
  if ((mask & ~warp.alive) != 0) {
    Fail("divergence",
         here + ": the mask " + Hex(mask) + " names lanes that have returned or do not exist, alive are " +
             Hex(warp.alive), &me);
  }
  for (const Meeting& other : warp.meetings) {
    if (other.arrived == 0 || other.mask == mask || (other.mask & mask) == 0) continue;
    Fail("divergence",
         here + ": its mask is " + Hex(mask) + ", but lanes of it wait with the mask " + Hex(other.mask) + " in " +
             NameOf(other.vote) + " at " + Name(other.site), &me);
  }
  Fail("divergence", here + ": other lanes of its mask are in " + NameOf(meeting.vote) + " at " + Name(meeting.site),
       &me);
}

void Shuffle(const Thread& me, const Meeting& meeting) {
  unsigned long long values[32];
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (meeting.mask >> lane & 1) values[lane] = Lane(me, lane).value;
  }
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((meeting.mask >> lane & 1) == 0) continue;
    Thread& thread = Lane(me, lane);
    const unsigned source = thread.source & 31;
    if ((meeting.mask >> source & 1) == 0) {
      Fail("divergence",
           Name(thread) + " in a shuffle at " + Name(meeting.site) + " reads lane " + std::to_string(source) +
               ", which is not in the mask " + Hex(meeting.mask), &thread);
    }
    thread.value = values[source];
  }
}

void TakeVote(const Thread& me, const Meeting& meeting) {
  unsigned ballot = 0;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((meeting.mask >> lane & 1) && Lane(me, lane).value != 0) ballot |= 1u << lane;
  }
  unsigned long long result = ballot;
  if (meeting.vote == Vote::kAny) result = ballot != 0;
  if (meeting.vote == Vote::kAll) result = ballot == meeting.mask;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if (meeting.mask >> lane & 1) Lane(me, lane).value = result;
  }
}

// All lanes are here. Only __syncwarp puts what they did before in front of what they do now.
void Complete(Thread& me, Meeting& meeting) {
  if (meeting.vote == Vote::kShuffle) {
    Shuffle(me, meeting);
  } else if (meeting.vote != Vote::kSync) {
    TakeVote(me, meeting);
  } else {
    Acquire(&meeting.tag);
  }
  meeting.arrived = 0;
  me.block->warps[me.warp].expected &= ~meeting.mask;
  ++Counted().warp_meetings;
  for (unsigned lane = 0; lane < 32; ++lane) {
    if ((meeting.mask >> lane & 1) == 0 || lane == me.lane) continue;
    Thread& other = Lane(me, lane);
    if (meeting.vote == Vote::kSync) Release(&other.woken);
    Wake(&other);
  }
}

}  // namespace

extern "C" int stitch_emulator_meet_block(Vote vote, int predicate, Site site) {
  State& now = Now();
  Thread* me = now.running;
  Block& block = *me->block;
  if (block.alive != block.size) {
    Fail("divergence",
         Name(*me) + " came to " + NameOf(vote) + " at " + Name(site) +
             " when other threads of its block had returned: every thread of a block must meet every barrier", me);
  }
  if (block.first != nullptr && !SamePlace(block.first->site, site)) {
    Fail("divergence",
         Name(*me) + " is in " + NameOf(vote) + " at " + Name(site) + ", but " + Name(*block.first) + " waits in " +
             block.first->waits_in + " at " + Name(block.first->site), me);
  }
  char* tag = &block.tags[block.passed & 1];
  Release(tag);
  block.count += predicate != 0;
  now.Progress();
  if (++block.arrived == block.size) {
    block.result = Result(vote, block);
    block.arrived = 0;
    block.count = 0;
    block.first = nullptr;
    ++block.passed;
    ++Counted().block_barriers;
    for (unsigned n = 0; n < block.size; ++n) {
      if (&block.threads[n] != me) Wake(&block.threads[n]);
    }
    Preempt();
  } else {
    if (block.first == nullptr) block.first = me;
    Wait(NameOf(vote), site);
  }
  Acquire(tag);
  return block.result;
}

extern "C" unsigned long long stitch_emulator_meet_warp(Vote vote, unsigned mask, unsigned long long value,
                                                        unsigned source, Site site) {
  State& now = Now();
  Thread* me = now.running;
  Warp& warp = me->block->warps[me->warp];
  Meeting& meeting = warp.meetings[mask == 0 ? 0 : __builtin_ctz(mask)];
  if (!MayArrive(*me, warp, meeting, vote, mask, site)) Refuse(*me, warp, meeting, vote, mask, site);
  warp.expected |= mask;
  me->value = value;
  me->source = source;
  meeting.mask = mask;
  meeting.vote = vote;
  meeting.site = site;
  meeting.arrived |= 1u << me->lane;
  now.Progress();
  if (vote == Vote::kSync) Release(&meeting.tag);
  if (meeting.arrived == mask) {
    Complete(*me, meeting);
    Preempt();
  } else {
    Wait(NameOf(vote), site);
    if (vote == Vote::kSync) Acquire(&me->woken);
  }
  return me->value;
}

extern "C" unsigned stitch_emulator_active_mask() {
  const Thread* me = Now().running;
  return 1u << me->lane;  // lanes do not run in step: none but itself is sure to be here
}

}  // namespace stitch_emulator
