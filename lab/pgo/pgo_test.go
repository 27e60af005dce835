package pgo

import (
	"bytes"
	"compress/gzip"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/pprof/profile"
)

// A builder makes CPU profiles as the Go runtime writes them.
type builder struct {
	p         *profile.Profile
	functions map[string]*profile.Function
}

func newBuilder() *builder {
	return &builder{
		p: &profile.Profile{
			SampleType: []*profile.ValueType{{Type: "samples", Unit: "count"}, {Type: "cpu", Unit: "nanoseconds"}},
			PeriodType: &profile.ValueType{Type: "cpu", Unit: "nanoseconds"}, Period: 10e6,
			TimeNanos: 1, DurationNanos: int64(time.Second),
			Mapping: []*profile.Mapping{{ID: 1, Start: 1, Limit: 1 << 40, File: "/home/somebody/bin/server", HasFunctions: true}},
		},
		functions: map[string]*profile.Function{},
	}
}

// add counts a stack, innermost function first. A function may name its file
// after an @; one that begins with + is inlined into the next.
func (b *builder) add(count int64, stack ...string) *builder {
	s := &profile.Sample{Value: []int64{count, count * 10e6}, Label: map[string][]string{"user": {"secret"}}}
	var l *profile.Location
	for _, name := range stack {
		name, inlined := strings.CutPrefix(name, "+")
		if l == nil {
			l = &profile.Location{ID: uint64(len(b.p.Location) + 1), Address: uint64(len(b.p.Location) + 1), Mapping: b.p.Mapping[0]}
			b.p.Location = append(b.p.Location, l)
			s.Location = append(s.Location, l)
		}
		f := b.function(name)
		l.Line = append(l.Line, profile.Line{Function: f, Line: f.StartLine + 5})
		if !inlined {
			l = nil
		}
	}
	b.p.Sample = append(b.p.Sample, s)
	return b
}

func (b *builder) function(name string) *profile.Function {
	name, file, ok := strings.Cut(name, "@")
	if !ok {
		file = "/home/somebody/src/x.go"
	}
	f := b.functions[name]
	if f == nil {
		f = &profile.Function{ID: uint64(len(b.functions) + 1), Name: name, SystemName: name, Filename: file, StartLine: int64(10 * (len(b.functions) + 1))}
		b.functions[name] = f
		b.p.Function = append(b.p.Function, f)
	}
	return f
}

func (b *builder) bytes(t testing.TB) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := b.p.Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func (b *builder) profile(t testing.TB, name string) *Profile {
	t.Helper()
	p, err := Parse(name, bytes.NewReader(b.bytes(t)))
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func gz(t testing.TB, data []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	z := gzip.NewWriter(&out)
	if _, err := z.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestParseRefuses: whatever is not a usable CPU profile is refused with the
// reason in its name.
func TestParseRefuses(t *testing.T) {
	heap := newBuilder().add(1, "main.f")
	heap.p.SampleType = []*profile.ValueType{{Type: "inuse_objects", Unit: "count"}, {Type: "inuse_space", Unit: "bytes"}}
	mutex := newBuilder().add(1, "main.f")
	mutex.p.SampleType = []*profile.ValueType{{Type: "contentions", Unit: "count"}, {Type: "delay", Unit: "nanoseconds"}}
	negative := newBuilder().add(5, "main.f").add(-1, "main.g")
	overflow := newBuilder().add(1<<39, "main.f")
	for range 4 {
		overflow.add(1<<39, "main.f")
	}
	nameless := newBuilder().add(1, "main.f")
	nameless.p.Location[0].Line = nil
	whole := newBuilder().add(1, "main.f").bytes(t)
	for name, c := range map[string]struct {
		data []byte
		is   error
		says string
	}{
		"empty":      {nil, ErrNotCPU, "is empty"},
		"text":       {[]byte("hello, this is not a profile\n"), ErrNotCPU, "not a profile"},
		"damaged":    {[]byte{0x1f, 0x8b, 8, 0, 1, 2}, ErrNotCPU, "damaged"},
		"cut off":    {whole[:len(whole)/2], ErrNotCPU, "damaged"},
		"gz text":    {gz(t, []byte("hello")), ErrNotCPU, "not a profile"},
		"gz empty":   {gz(t, nil), ErrNotCPU, ""},
		"heap":       {heap.bytes(t), ErrNotCPU, "heap profile"},
		"mutex":      {mutex.bytes(t), ErrNotCPU, "mutexes"},
		"no samples": {newBuilder().bytes(t), ErrEmpty, ""},
		"idle":       {newBuilder().add(0, "main.f").bytes(t), ErrEmpty, ""},
		"difference": {negative.bytes(t), ErrNotCPU, "difference of two"},
		"overflow":   {overflow.bytes(t), ErrNotCPU, "more CPU time"},
		"nameless":   {nameless.bytes(t), ErrNotCPU, "only addresses"},
	} {
		p, err := Parse("x.pprof", bytes.NewReader(c.data))
		if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "x.pprof") {
			t.Errorf("%s: %v, want %v with %q", name, err, c.is, c.says)
		}
		if p != nil {
			t.Errorf("%s: a profile came with the error", name)
		}
	}
}

// TestParseBomb: a few bytes of gzip cannot become all of the memory.
func TestParseBomb(t *testing.T) {
	if testing.Short() {
		t.Skip("it inflates 64 MB")
	}
	bomb := gz(t, make([]byte, maxData+1))
	if _, err := Parse("bomb", bytes.NewReader(bomb)); !errors.Is(err, ErrNotCPU) || !strings.Contains(err.Error(), "more than 64 MB") {
		t.Errorf("%v", err)
	}
}

// TestParse: with and without gzip, and what a profile says of itself.
func TestParse(t *testing.T) {
	b := newBuilder().add(30, "main.f", "main.main").add(70, "main.g", "main.main")
	var plain bytes.Buffer
	if err := b.p.WriteUncompressed(&plain); err != nil {
		t.Fatal(err)
	}
	for _, data := range [][]byte{b.bytes(t), plain.Bytes()} {
		p, err := Parse("x", bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if p.CPU() != time.Second || p.Samples() != 100 || p.Span() != time.Second {
			t.Errorf("%v of CPU time, %d samples, %v", p.CPU(), p.Samples(), p.Span())
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.pprof")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there is no file") {
		t.Errorf("%v", err)
	}
	file := filepath.Join(t.TempDir(), "x.pprof")
	if err := os.WriteFile(file, b.bytes(t), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err := Read(file); err != nil || p.Name != file {
		t.Errorf("%v", err)
	}
}

// FuzzParse: whatever is read can be used by all functions without a panic.
func FuzzParse(f *testing.F) {
	f.Add(newBuilder().add(3, "main.f", "main.main").add(1, "+main.g", "runtime.memmove@memmove_amd64.s", "main.main").bytes(f))
	b := newBuilder().add(3, "internal/runtime/syscall.Syscall6@asm.s", "main.main")
	var plain bytes.Buffer
	if err := b.p.WriteUncompressed(&plain); err != nil {
		f.Fatal(err)
	}
	f.Add(plain.Bytes())
	f.Add([]byte{0x1f, 0x8b})
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := Parse("x", bytes.NewReader(data))
		if err != nil {
			return
		}
		var sum float64
		for _, share := range Predict(p).Shares {
			sum += share
		}
		if sum < 0.999 || sum > 1.001 {
			t.Errorf("shares sum to %v", sum)
		}
		if d := Diff(p, p); d.Moved != 0 {
			t.Errorf("a profile differs from itself by %v", d.Moved)
		}
		m, err := Merge([]Part{{p, 1}}, 0)
		if err != nil {
			return // without start lines, for instance
		}
		if len(m.Data) > MaxMerged {
			t.Errorf("%d bytes", len(m.Data))
		}
	})
}
