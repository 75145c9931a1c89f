"""The structs of abi.h for kernels for GPUs, as ctypes has them."""

from __future__ import annotations

import ctypes


class StitchModule(ctypes.Structure):
    _fields_ = (
        ("arch", ctypes.c_int),
        ("is_ptx", ctypes.c_int),
        ("image", ctypes.c_void_p),
        ("bytes", ctypes.c_longlong),
        ("parameters", ctypes.c_int),
        ("parameter", ctypes.POINTER(ctypes.c_int * 2)),
        ("launch", ctypes.c_void_p),
    )


class StitchGpuKernel(ctypes.Structure):
    _fields_ = (
        ("abi", ctypes.c_int),
        ("alignment", ctypes.c_int),
        ("modules", ctypes.c_int),
        ("module", ctypes.POINTER(StitchModule)),
    )


class StitchLaunch(ctypes.Structure):
    _fields_ = (
        ("entry", ctypes.c_char_p),
        ("resident", ctypes.c_int),
        ("blocks", ctypes.c_longlong),
        ("threads", ctypes.c_longlong),
        ("shared_bytes", ctypes.c_longlong),
        ("scratch_bytes", ctypes.c_longlong),
    )
