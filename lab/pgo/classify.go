package pgo

import (
	"slices"
	"strings"
)

// Class is what sort of code a sample was in, as far as profile-guided
// optimisation is concerned.
type Class string

// The classes, from what it can touch to what it cannot.
const (
	// Go is compiled Go code but that of the runtime: inlining and direct
	// calls happen here.
	Go Class = "Go code"
	// Runtime is the Go runtime: scheduler, allocator, maps, channels, timers.
	Runtime Class = "Go runtime"
	// Collector is the garbage collector, its assists and sweeping included.
	Collector Class = "garbage collector"
	// Assembly is code written in assembly: memmove, hashes, ciphers.
	Assembly Class = "assembly"
	// Foreign is C: cgo, libc, the vDSO, whatever has no Go name.
	Foreign Class = "C (cgo, libc)"
	// Kernel is system calls. A CPU profile sees no further than the function
	// that makes the call.
	Kernel Class = "kernel (system calls)"
)

// Classes lists them in order.
func Classes() []Class { return []Class{Go, Runtime, Collector, Assembly, Foreign, Kernel} }

// kernelFuncs are where a thread is while the kernel works for it: they hold a
// system call instruction and little else.
var kernelFuncs = []string{
	"runtime.futex", "runtime.usleep", "runtime.osyield", "runtime.epollwait", "runtime.epollctl", "runtime.kevent",
	"runtime.madvise", "runtime.sysMmap", "runtime.mmap", "runtime.munmap", "runtime.sysMunmap", "runtime.tgkill",
	"runtime.read", "runtime.write1", "runtime.open", "runtime.closefd", "runtime.clone", "runtime.sched_yield",
	"runtime.nanotime1.syscall", "runtime.rtsigprocmask", "runtime.sigaltstack", "runtime.timer_settime", "runtime.mincore",
	"runtime.netpollBreak.write", "runtime.pthread_cond_wait", "runtime.pthread_cond_signal", "runtime.pthread_cond_timedwait_relative_np",
}

// kernelPrefixes are the same in packages that hold nothing else.
var kernelPrefixes = []string{
	"internal/runtime/syscall.", "internal/runtime/syscall/", "runtime/internal/syscall.",
	"syscall.Syscall", "syscall.RawSyscall", "syscall.rawSyscall", "syscall.syscall", "syscall.rawVfork",
	"golang.org/x/sys/unix.Syscall", "golang.org/x/sys/unix.RawSyscall",
}

// foreignFuncs are where Go stops looking.
var foreignFuncs = []string{
	"runtime.cgocall", "runtime.asmcgocall", "runtime.cgocallback", "runtime._ExternalCode", "runtime._VDSO", "runtime._LostExternalCode",
}

// collectorFuncs are on the stack of everything that the garbage collector
// does.
var collectorFuncs = []string{
	"runtime.gcBgMarkWorker", "runtime.gcAssistAlloc", "runtime.gcAssistAlloc1", "runtime.gcStart", "runtime.gcMarkTermination", "runtime.gcMarkDone",
	"runtime.bgsweep", "runtime.bgscavenge", "runtime.gcDrain", "runtime.gcDrainN", "runtime.scanobject", "runtime.scanstack", "runtime._GC",
	"runtime.deductSweepCredit", "runtime.wbBufFlush", "runtime.gcWriteBarrier", "runtime.sweepone", "runtime.gcStopTheWorld",
}

// classify says what a stack is about, innermost function first.
func classify(stack []frame) Class {
	if len(stack) == 0 {
		return Foreign
	}
	leaf := stack[0]
	name := leaf.name
	switch {
	case slices.Contains(foreignFuncs, name):
		return Foreign
	case slices.Contains(kernelFuncs, name), hasPrefix(name, kernelPrefixes):
		return Kernel
	case foreign(leaf):
		return Foreign
	case slices.ContainsFunc(stack, func(f frame) bool { return slices.Contains(collectorFuncs, trimClosure(f.name)) }):
		return Collector
	case strings.HasSuffix(leaf.file, ".s"):
		return Assembly
	case ofRuntime(name):
		return Runtime
	}
	return Go
}

// ofRuntime reports whether a function belongs to the runtime's own packages.
// Packages below runtime (runtime/debug) are ordinary Go.
func ofRuntime(name string) bool {
	return strings.HasPrefix(name, "runtime.") || strings.HasPrefix(name, "internal/runtime/") || strings.HasPrefix(name, "runtime/internal/")
}

// foreign reports whether code is not Go's: C functions have no package before
// their name, and places without a name are libraries.
func foreign(f frame) bool {
	if strings.HasPrefix(f.name, "[") || strings.HasPrefix(f.name, "_cgo_") || strings.Contains(f.name, "._Cfunc_") {
		return true
	}
	for _, end := range []string{".c", ".cc", ".cpp", ".h"} {
		if strings.HasSuffix(f.file, end) {
			return true
		}
	}
	if strings.HasSuffix(f.file, ".go") || strings.HasSuffix(f.file, ".s") {
		return false
	}
	// A few assembly stubs of the runtime have no package either (gogo,
	// aeshashbody), but their file says that they are assembly.
	return !strings.Contains(f.name, ".")
}

// trimClosure is the function that a closure is in: runtime.gcDrain.func1.
func trimClosure(name string) string {
	if at := strings.Index(name, ".func"); at > 0 {
		return name[:at]
	}
	return name
}

func hasPrefix(s string, prefixes []string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}
