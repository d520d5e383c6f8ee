"""The thread pool of generated code, as LLVM text: part of the runtime library. No OpenMP, no lock on the fast path.

`tc.pool.run(pool, part, env, extent)` calls `part(env, begin, end, thread)` for pieces that cover 0..extent, on the
calling thread (thread 0) and on any worker that comes in time. `tc.pool.worker(start)` is the body of a worker.

The pool is a block of words (see `WORDS`). How pieces are given out:

* `claim` holds (generation << 32 | pieces not yet taken); taking one is a compare-and-swap that takes one off. The
  job's fields are written before a new generation is published and not again until all its pieces are done, so whoever
  takes a piece of generation g has read the fields of g.
* The caller takes pieces too and then waits only for pieces that somebody has taken: a worker that has not woken up is
  never waited for.
* A worker spins for a short while, then sleeps on `wake` (futex). It reads `wake` before it looks for work and counts
  itself in `sleepers` before it sleeps; the caller changes `wake` after publishing and then looks at `sleepers`: no
  wake-up is lost.
* A worker that is woken on the caller's processor moves to another one. Linux often wakes a thread where its waker runs
  and leaves it there for a long time; the worker would only take turns with the caller (measured on two cores: 80
  against 165 GFLOP/s for the same products, for seconds on end). Where the processor has an instruction that says
  which one it is (`rdpid`), a worker also looks after each job, because Linux moves callers, too.
* A second caller at the same time finds `owner` taken and runs its axis alone. So does a forked child, whose workers do
  not exist (the pool is made anew there on first use).

Workers clear the floating-point flags before a piece and add what was raised to the pool; the caller takes it over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tiercel.codegen.cpu.target import Target

WORDS: Final = {
    "run": 0,
    "claim": 8,
    "done": 16,
    "part": 24,
    "env": 25,
    "extent": 26,
    "pieces": 27,
    "flags": 28,
    "caller": 29,
    "owner": 32,
    "wake": 40,
    "sleepers": 48,
    "stop": 56,
    "threads": 57,
    "spin": 58,
    "starts": 64,
}
"""Word of each field; fields that different threads write lie in different cache lines. From `starts` on two words for
each worker: the address of the pool and the worker's number."""

PIECES_PER_THREAD: Final = 4
SINGLE_PER_THREAD: Final = 16
"""Extents up to so many a thread are given out one by one: blocks of a product do not divide evenly."""
RUN, WORKER = "tc.pool.run", "tc.pool.worker"
_FUTEX: Final = 202  # x86-64 system call number
_WAIT, _WAKE = 128, 129  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
_GETCPU, _SETAFFINITY, _GETAFFINITY = 309, 203, 204  # system call numbers
_MASK_WORDS: Final = 16  # 1024 processors, as in the C library's cpu_set_t


def _field(name: str, register: str) -> str:
    return f"  {register} = getelementptr i64, ptr %pool, i64 {WORDS[name]}"


def threads_text(target: Target) -> list[str]:
    """(declarations, functions) as lines of LLVM."""
    quick = "+rdpid" in target.features.split(",")
    number = ["  %processor = call i32 @llvm.x86.rdpid()", "  %here.now = and i32 %processor, 4095"]
    publish = [*number, "  store atomic i32 %here.now, ptr %caller.at monotonic, align 4"]
    ask = f"  %here = call i64 (i64, ...) @syscall(i64 {_GETCPU}, ptr %caller.at, ptr null, ptr null)"
    fields = {name: f"%{name}.at" for name in WORDS}

    def at(*names: str) -> list[str]:
        return [_field(n, fields[n]) for n in names]

    drain = [
        "define internal void @tc.pool.drain(ptr %pool, i64 %generation, i64 %thread) {",
        "entry:",
        *at("claim", "done", "part", "env", "extent", "pieces", "flags"),
        "  %word = alloca i32, align 4",
        "  %worker = icmp ne i64 %thread, 0",
        "  br label %look",
        "look:",
        "  %c = load atomic i64, ptr %claim.at seq_cst, align 8",
        "  %g = lshr i64 %c, 32",
        "  %left = and i64 %c, 4294967295",
        "  %mine = icmp eq i64 %g, %generation",
        "  %some = icmp ne i64 %left, 0",
        "  %go = and i1 %mine, %some",
        "  br i1 %go, label %take, label %out",
        "take:",
        "  %part = load ptr, ptr %part.at, align 8",
        "  %env = load ptr, ptr %env.at, align 8",
        "  %extent = load i64, ptr %extent.at, align 8",
        "  %pieces = load i64, ptr %pieces.at, align 8",
        "  %less = sub i64 %c, 1",
        "  %swap = cmpxchg ptr %claim.at, i64 %c, i64 %less seq_cst seq_cst",
        "  %taken = extractvalue { i64, i1 } %swap, 1",
        "  br i1 %taken, label %work, label %look",
        "work:",
        "  %number = sub i64 %pieces, %left",
        "  %after = add i64 %number, 1",
        "  %b.m = mul i64 %extent, %number",
        "  %begin = sdiv i64 %b.m, %pieces",
        "  %e.m = mul i64 %extent, %after",
        "  %end = sdiv i64 %e.m, %pieces",
        "  br i1 %worker, label %clear, label %call",
        "clear:",
        "  call void @llvm.x86.sse.stmxcsr(ptr %word)",
        "  %old = load i32, ptr %word, align 4",
        "  %clean = and i32 %old, -64",
        "  store i32 %clean, ptr %word, align 4",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %word)",
        "  br label %call",
        "call:",
        "  call void %part(ptr %env, i64 %begin, i64 %end, i64 %thread)",
        "  br i1 %worker, label %collect, label %count",
        "collect:",
        "  call void @llvm.x86.sse.stmxcsr(ptr %word)",
        "  %new = load i32, ptr %word, align 4",
        "  %raised = and i32 %new, 63",
        "  %wide = zext i32 %raised to i64",
        "  %ignored = atomicrmw or ptr %flags.at, i64 %wide seq_cst",
        "  br label %count",
        "count:",
        "  %finished = atomicrmw add ptr %done.at, i64 1 seq_cst",
        "  br label %look",
        "out:",
        "  ret void",
        "}",
    ]
    run = [
        f"define void @{RUN}(ptr %pool, ptr %part, ptr %env, i64 %extent) {{",
        "entry:",
        *at("claim", "done", "part", "env", "extent", "pieces", "flags", "owner", "wake", "sleepers", "threads"),
        *at("caller"),
        "  %word = alloca i32, align 4",
        "  %none = icmp sle i64 %extent, 0",
        "  br i1 %none, label %out, label %lock",
        "lock:",
        "  %swap = cmpxchg ptr %owner.at, i64 0, i64 1 seq_cst seq_cst",
        "  %mine = extractvalue { i64, i1 } %swap, 1",
        "  br i1 %mine, label %publish, label %alone",
        "alone:",
        "  call void %part(ptr %env, i64 0, i64 %extent, i64 0)",
        "  br label %out",
        "publish:",
        "  %threads = load i64, ptr %threads.at, align 8",
        f"  %single = mul i64 %threads, {SINGLE_PER_THREAD}",
        "  %few = icmp sle i64 %extent, %single",
        f"  %many = mul i64 %threads, {PIECES_PER_THREAD}",
        "  %pieces = select i1 %few, i64 %extent, i64 %many",
        *(publish if quick else ()),
        "  store ptr %part, ptr %part.at, align 8",
        "  store ptr %env, ptr %env.at, align 8",
        "  store i64 %extent, ptr %extent.at, align 8",
        "  store i64 %pieces, ptr %pieces.at, align 8",
        "  store i64 0, ptr %flags.at, align 8",
        "  store atomic i64 0, ptr %done.at seq_cst, align 8",
        "  %c = load atomic i64, ptr %claim.at seq_cst, align 8",
        "  %g = lshr i64 %c, 32",
        "  %g.1 = add i64 %g, 1",
        "  %generation = and i64 %g.1, 4294967295",
        "  %high = shl i64 %generation, 32",
        "  %new = or i64 %high, %pieces",
        "  store atomic i64 %new, ptr %claim.at seq_cst, align 8",
        "  %tick = trunc i64 %generation to i32",
        "  store atomic i32 %tick, ptr %wake.at seq_cst, align 4",
        "  %asleep = load atomic i64, ptr %sleepers.at seq_cst, align 8",
        "  %any = icmp sgt i64 %asleep, 0",
        "  br i1 %any, label %rouse, label %drain",
        "rouse:",
        *(() if quick else (ask,)),
        f"  %woken = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %wake.at, i32 {_WAKE}, i32 2147483647)",
        "  br label %drain",
        "drain:",
        "  call void @tc.pool.drain(ptr %pool, i64 %generation, i64 0)",
        "  br label %wait",
        "wait:",
        "  %finished = load atomic i64, ptr %done.at seq_cst, align 8",
        "  %all = icmp sge i64 %finished, %pieces",
        "  br i1 %all, label %release, label %pause",
        "pause:",
        "  call void @llvm.x86.sse2.pause()",
        "  br label %wait",
        "release:",
        "  %raised = load atomic i64, ptr %flags.at seq_cst, align 8",
        "  %flags = trunc i64 %raised to i32",
        "  call void @llvm.x86.sse.stmxcsr(ptr %word)",
        "  %own = load i32, ptr %word, align 4",
        "  %both = or i32 %own, %flags",
        "  store i32 %both, ptr %word, align 4",
        "  call void @llvm.x86.sse.ldmxcsr(ptr %word)",
        "  store atomic i64 0, ptr %owner.at seq_cst, align 8",
        "  br label %out",
        "out:",
        "  ret void",
        "}",
    ]
    look = [
        *number,
        "  %worked.on = add i32 %here.now, 0",
        "  %called.on = load atomic i32, ptr %caller.at monotonic, align 4",
        "  %together = icmp eq i32 %worked.on, %called.on",
        f"  %in.mask = icmp ult i32 %worked.on, {64 * _MASK_WORDS}",
        "  %both.here = and i1 %together, %in.mask",
        "  br i1 %both.here, label %move, label %idle",
    ]
    worker = [
        f"define ptr @{WORKER}(ptr %start) {{",
        "entry:",
        "  %pool = load ptr, ptr %start, align 8",
        "  %number.at = getelementptr i64, ptr %start, i64 1",
        "  %number = load i64, ptr %number.at, align 8",
        *at("claim", "wake", "sleepers", "stop", "spin", "caller"),
        "  %cpu.at = alloca i32, align 4",
        f"  %mask = alloca [{_MASK_WORDS} x i64], align 8",
        f"  %fewer = alloca [{_MASK_WORDS} x i64], align 8",
        "  %limit = load i64, ptr %spin.at, align 8",
        "  br label %idle",
        "idle:",
        "  %seen = load atomic i32, ptr %wake.at seq_cst, align 4",
        "  br label %look",
        "look:",
        "  %turn = phi i64 [ 0, %idle ], [ %next, %again ]",
        "  %c = load atomic i64, ptr %claim.at seq_cst, align 8",
        "  %left = and i64 %c, 4294967295",
        "  %some = icmp ne i64 %left, 0",
        "  br i1 %some, label %work, label %rest",
        "work:",
        "  %generation = lshr i64 %c, 32",
        "  call void @tc.pool.drain(ptr %pool, i64 %generation, i64 %number)",
        *(look if quick else ["  br label %idle"]),
        "rest:",
        "  %stop = load atomic i64, ptr %stop.at seq_cst, align 8",
        "  %over = icmp ne i64 %stop, 0",
        "  br i1 %over, label %out, label %again",
        "again:",
        "  call void @llvm.x86.sse2.pause()",
        "  %next = add i64 %turn, 1",
        "  %patient = icmp slt i64 %next, %limit",
        "  br i1 %patient, label %look, label %sleep",
        "sleep:",
        "  %in = atomicrmw add ptr %sleepers.at, i64 1 seq_cst",
        f"  %slept = call i64 (i64, ...) @syscall(i64 {_FUTEX}, ptr %wake.at, i32 {_WAIT}, i32 %seen, ptr null)",
        "  %outof = atomicrmw sub ptr %sleepers.at, i64 1 seq_cst",
        f"  %here = call i64 (i64, ...) @syscall(i64 {_GETCPU}, ptr %cpu.at, ptr null, ptr null)",
        "  %cpu = load i32, ptr %cpu.at, align 4",
        "  %caller = load atomic i32, ptr %caller.at monotonic, align 4",
        "  %same = icmp eq i32 %cpu, %caller",
        f"  %known = icmp ult i32 %cpu, {64 * _MASK_WORDS}",
        "  %stacked = and i1 %same, %known",
        "  br i1 %stacked, label %move, label %idle",
        "move:",
        f"  %place = phi i32 [ %cpu, %sleep ]{', [ %worked.on, %work ]' if quick else ''}",
        # all processors but this one, then again all that were allowed
        f"  store <{_MASK_WORDS} x i64> zeroinitializer, ptr %mask, align 8",
        f"  %got = call i64 (i64, ...) @syscall(i64 {_GETAFFINITY}, i64 0, i64 {8 * _MASK_WORDS}, ptr %mask)",
        "  %answered = icmp sgt i64 %got, 0",
        "  br i1 %answered, label %change, label %idle",
        "change:",
        f"  %all = load <{_MASK_WORDS} x i64>, ptr %mask, align 8",
        f"  store <{_MASK_WORDS} x i64> %all, ptr %fewer, align 8",
        "  %cpu.wide = zext i32 %place to i64",
        "  %cpu.word = lshr i64 %cpu.wide, 6",
        "  %cpu.bit = and i64 %cpu.wide, 63",
        "  %bit = shl i64 1, %cpu.bit",
        "  %others = xor i64 %bit, -1",
        "  %word.at = getelementptr i64, ptr %fewer, i64 %cpu.word",
        "  %word = load i64, ptr %word.at, align 8",
        "  %without = and i64 %word, %others",
        "  store i64 %without, ptr %word.at, align 8",
        f"  %moved = call i64 (i64, ...) @syscall(i64 {_SETAFFINITY}, i64 0, i64 %got, ptr %fewer)",
        f"  %freed = call i64 (i64, ...) @syscall(i64 {_SETAFFINITY}, i64 0, i64 %got, ptr %mask)",
        "  br label %idle",
        "out:",
        "  ret ptr null",
        "}",
    ]
    declarations = [
        "declare i64 @syscall(i64, ...)",
        *(["declare i32 @llvm.x86.rdpid()"] if quick else []),
        "declare void @llvm.x86.sse2.pause()",
        "declare void @llvm.x86.sse.stmxcsr(ptr)",
        "declare void @llvm.x86.sse.ldmxcsr(ptr)",
    ]
    return [*declarations, *drain, *run, *worker]
