"""What borrowing a thread needs to know of x86-64. Another processor is another file with these functions.

A frame on the borrowed thread's stack, below its red zone, is what the kernel would have left there for a
signal handler: when a called function returns into it, the thread runs rt_sigreturn and is where it was, all
registers and the signal mask as before, whether or not an attacher is still there.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

MACHINE = "x86_64"

GENERAL, EXTENDED = 1, 0x202  # NT_PRSTATUS, NT_X86_XSTATE
NR_CLOSE, NR_GETPID, NR_SOCKETPAIR, NR_MEMFD_CREATE = 3, 39, 53, 319
NR_RETURN = 15  # rt_sigreturn
NR_PIDFD_GETFD = 438

_NR_FUTEX = 202
_FUTEX_WAIT_BITSET = 9
WAITS = {
    7: "poll",
    271: "poll",
    232: "epoll",
    281: "epoll",
    441: "epoll",
    35: "sleep",
    230: "sleep",
    _NR_FUTEX: "condition",
    23: "select",
    270: "select",
}

# glibc's __restore_rt: mov $15, %rax; syscall
RESTORER = bytes.fromhex("48c7c00f0000000f05")

_EINTR = -4
_RESTARTS = {-512, -513, -514, -516, _EINTR}  # ERESTART*, and what epoll gives for them
_ERESTARTNOHAND = -514
_ENOSYS = -38

# In the order of struct user_regs_struct and of struct sigcontext.
_REGISTERS = (
    "r15 r14 r13 r12 rbp rbx r11 r10 r9 r8 rax rcx rdx rsi rdi orig_rax rip cs eflags rsp ss "
    "fs_base gs_base ds es fs gs"
)
_CONTEXT = "r8 r9 r10 r11 r12 r13 r14 r15 rdi rsi rbp rbx rdx rax rcx rsp rip eflags"
_NAMES, _SAVED = _REGISTERS.split(), _CONTEXT.split()
_ARGUMENTS = ("rdi", "rsi", "rdx", "r10", "r8", "r9")  # of a system call; a function's differ in the fourth

_RED_ZONE = 128
_SCRATCH_BYTES = 256
_CONTEXT_BYTES = 304  # struct ucontext with the kernel's 8-byte signal mask
_FLAGS = 1 | 2 | 4  # UC_FP_XSTATE, UC_SIGCONTEXT_SS, UC_STRICT_RESTORE_SS
_KEEP_SIGNAL_STACK = 0x40  # ss_flags that sigaltstack refuses: the thread's stays as it is
_XSAVE_MAGIC1, _XSAVE_MAGIC2 = 0x46505853, 0x46505845
_TILES = 1 << 18
_BYTES_BEFORE_TILES = 2696

Registers = dict[str, int]


class Frame(NamedTuple):
    """What to write to the stack, and where."""

    address: int  # of `content`, and of a called function's return address
    content: bytes
    scratch: int  # 256 bytes for the arguments of calls


def unpack(content: bytes) -> Registers:
    """The general registers in the layout of NT_PRSTATUS."""
    return dict(zip(_NAMES, struct.unpack(f"<{len(_NAMES)}Q", content), strict=True))


def pack(registers: Registers) -> bytes:
    """The reverse of `unpack`; negative values are welcome."""
    return struct.pack(f"<{len(_NAMES)}Q", *(registers[name] & (2**64 - 1) for name in _NAMES))


def _signed(value: int) -> int:
    return value - 2**64 if value >> 63 else value


def may_borrow(number: int, arguments: tuple[int, ...]) -> bool:
    """A call that a thread waits in without holding a lock of libc.

    A futex wait with a bit set is a condition variable, a semaphore or a join; malloc and the loader wait for
    their locks without one.
    """
    if number == _NR_FUTEX:
        return arguments[1] & 0x7F == _FUTEX_WAIT_BITSET
    return number in WAITS


def waits(registers: Registers) -> bool:
    """The thread was stopped inside a call that it may be borrowed from, and has not got its result."""
    number = _signed(registers["orig_rax"])
    arguments = tuple(registers[name] for name in _ARGUMENTS)
    return may_borrow(number, arguments) and _signed(registers["rax"]) in _RESTARTS


def waits_for_lock(registers: Registers) -> bool:
    """The thread was stopped in a futex wait; rdi is the futex."""
    return _signed(registers["orig_rax"]) == _NR_FUTEX and _signed(registers["rax"]) in _RESTARTS


def again(registers: Registers) -> Registers:
    """For a thread in a wait, where the kernel looks for signals: go on as if we had not stopped it.

    Makes epoll wait on unless a handler runs, as the others do by themselves; with the time that is left,
    where the kernel knows it.
    """
    if _signed(registers["rax"]) == _EINTR:
        return registers | {"rax": _ERESTARTNOHAND}
    return registers


def _extended_state(content: bytes) -> bytes:
    """The xsave area of a signal frame from NT_X86_XSTATE."""
    features = struct.unpack_from("<Q", content, 464)[0]
    size = len(content)
    if features & _TILES:  # the kernel takes them from a frame only where a thread has asked for tiles
        size, features = _BYTES_BEFORE_TILES, features & ~(3 << 17)
    software = struct.pack("<IIQI28x", _XSAVE_MAGIC1, size + 4, features, size)
    return content[:464] + software + content[512:size] + struct.pack("<I", _XSAVE_MAGIC2)


def _context(registers: Registers, mask: int, extended_at: int) -> bytes:
    """A struct ucontext that makes the thread issue its call anew."""
    saved = registers | {"rip": registers["rip"] - 2, "rax": registers["orig_rax"]}
    general = struct.pack("<18Q", *(saved[name] for name in _SAVED))
    segments = struct.pack("<HHHH", registers["cs"], 0, 0, registers["ss"])
    stack = struct.pack("<QiiQ", 0, _KEEP_SIGNAL_STACK, 0, 0)
    rest = struct.pack("<4Q", 0, 0, 0, 0)  # err, trapno, oldmask, cr2
    return (
        struct.pack("<QQ", _FLAGS, 0) + stack + general + segments + rest
        + struct.pack("<Q64x", extended_at) + struct.pack("<Q", mask)
    )  # fmt: skip


def build_frame(registers: Registers, extended: bytes, mask: int, restorer: int) -> Frame:
    """The frame that brings a thread with these registers and signal mask back."""
    state = _extended_state(extended)
    scratch = (registers["rsp"] - _RED_ZONE - _SCRATCH_BYTES) & ~63
    extended_at = (scratch - len(state)) & ~63
    # A function expects the stack as after a call: 8 below a multiple of 16.
    address = ((extended_at - 8 - _CONTEXT_BYTES) & ~15) - 8
    start = struct.pack("<Q", restorer) + _context(registers, mask, extended_at)
    content = start.ljust(extended_at - address, b"\0") + state
    return Frame(address, content.ljust(scratch + _SCRATCH_BYTES - address, b"\0"), scratch)


def to_return(registers: Registers, frame: Frame, restorer: int) -> Registers:
    """From the stop in its wait: run into the frame's rt_sigreturn."""
    return registers | {"rip": restorer, "rsp": frame.address + 8, "orig_rax": -1, "rax": 0}


# The two below are set where the thread is about to enter rt_sigreturn: the kernel runs the call that
# orig_rax names in its place. -1, no call, would meet a seccomp filter's default action.
def to_call(
    registers: Registers, frame: Frame, restorer: int, number: int, arguments: tuple[int, ...]
) -> Registers:
    """Make the system call `number`, then run into rt_sigreturn again."""
    given = dict(zip(_ARGUMENTS, arguments, strict=False))
    place = {"rip": restorer, "rsp": frame.address + 8, "orig_rax": number, "rax": _ENOSYS}
    return registers | given | place


def to_function(registers: Registers, frame: Frame, function: int, arguments: tuple[int, ...]) -> Registers:
    """Call `function` with up to three arguments; it returns into the frame."""
    given = dict(zip(_ARGUMENTS[:3], arguments, strict=False))
    place = {"rip": function, "rsp": frame.address, "orig_rax": NR_GETPID, "rax": _ENOSYS}
    return registers | given | place
