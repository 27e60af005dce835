package pgo

import (
	"math"
	"strings"
	"testing"
)

// TestClassify: by the innermost function, and the garbage collector by
// whoever called.
func TestClassify(t *testing.T) {
	for stack, want := range map[string]Class{
		"main.f main.main":                                     Go,
		"net/http.(*conn).serve":                               Go,
		"runtime/debug.Stack main.f":                           Go,
		"strings.Map main.f":                                   Go,
		"runtime.mallocgc main.f":                              Runtime,
		"runtime.findRunnable":                                 Runtime,
		"internal/runtime/maps.hash":                           Runtime,
		"runtime.memmove@m.s main.f":                           Assembly,
		"aeshashbody@asm_amd64.s":                              Assembly,
		"crypto/sha256.block@sha.s":                            Assembly,
		"indexbytebody@i.s bytes.X":                            Assembly,
		"runtime.gcDrain":                                      Collector,
		"runtime.futex@sys.s main.f":                           Kernel,
		"runtime.cgocall main.f":                               Foreign,
		"runtime._ExternalCode":                                Foreign,
		"malloc@malloc.c":                                      Foreign,
		"malloc@":                                              Foreign,
		"main._Cfunc_work@_cgo.go":                             Foreign,
		"[libc.so.6] runtime.cgocall":                          Foreign,
		"runtime.epollwait@sys.s runtime.netpoll":              Kernel,
		"syscall.Syscall@asm.s os.(*File).Read":                Kernel,
		"internal/runtime/syscall/linux.Syscall6@asm.s main.f": Kernel,
		"runtime.memmove@m.s runtime.scanobject runtime.gcBgMarkWorker": Collector,
		"runtime.greyobject runtime.gcDrain.func1":                      Collector,
		"runtime.futex@sys.s runtime.gcBgMarkWorker":                    Kernel,
	} {
		var frames []frame
		for name := range strings.FieldsSeq(stack) {
			name, file, ok := strings.Cut(name, "@")
			if !ok {
				file = "x.go"
			}
			frames = append(frames, frame{name: name, file: file})
		}
		if got := classify(frames); got != want {
			t.Errorf("%s is %q, want %q", stack, got, want)
		}
	}
	if got := classify(nil); got != Foreign {
		t.Errorf("nothing at all is %q", got)
	}
}

// TestPredict: shares, the bound made from them, and its precision.
func TestPredict(t *testing.T) {
	p := newBuilder().
		add(400, "main.f", "main.main").
		add(600, "internal/runtime/syscall.Syscall6@asm.s", "syscall.write", "main.main").
		profile(t, "x")
	got := Predict(p)
	if got.Samples != 1000 || got.Rough || math.Abs(got.Shares[Go]-0.4) > 1e-9 || math.Abs(got.Shares[Kernel]-0.6) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if se := 1.96 * math.Sqrt(0.4*0.6/1000); math.Abs(got.Error-se) > 1e-9 || math.Abs(got.Most-0.14*(0.4+se)) > 1e-9 || math.Abs(got.Least-0.008) > 1e-9 {
		t.Errorf("%+v", got)
	}
	if s := got.Sentence(); !strings.HasPrefix(s, "at best 6.0 % less CPU time: 40.0 % of the samples") {
		t.Error(s)
	}
	if len(Classes()) != len(got.Shares) {
		t.Errorf("%d classes have shares, of %d", len(got.Shares), len(Classes()))
	}
	if !Predict(newBuilder().add(999, "main.f").profile(t, "x")).Rough {
		t.Error("999 samples are not rough")
	}
}

// TestPredictCalls: the innermost call of each stack counts, as for the
// compiler; what is inlined already is not a call, and time outside Go code is not
// what PGO can reach.
func TestPredictCalls(t *testing.T) {
	p := newBuilder().
		add(50, "main.leaf", "main.loop", "main.main").
		add(30, "+main.inlined", "main.loop", "main.main").
		add(20, "runtime.memmove@memmove.s", "main.rec", "main.rec", "main.rec", "main.main").
		profile(t, "x")
	got := Predict(p)
	shares := map[string]float64{}
	for _, c := range got.Calls {
		shares[c.Caller+" "+c.Callee] = c.Share
	}
	if len(shares) != 2 || math.Abs(shares["main.main main.loop"]-0.3) > 1e-9 || math.Abs(shares["main.loop main.leaf"]-0.5) > 1e-9 {
		t.Errorf("calls %v", shares)
	}
	if math.Abs(got.Hot-0.8) > 1e-9 { // leaf below loop, and what is inlined into loop below main
		t.Errorf("%v is right below hot calls", got.Hot)
	}
	if got.Hot > got.Shares[Go]+1e-9 {
		t.Errorf("more below hot calls (%v) than there is (%v)", got.Hot, got.Shares[Go])
	}
}
