package pgo

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// shareOf is the share of a function's own time.
func shareOf(p *Profile, name string) float64 {
	for _, c := range Diff(p, p).Changes {
		if c.Func == name {
			return c.Base
		}
	}
	return 0
}

// TestMergeWeights: each part has the share of its weight, whatever its length.
func TestMergeWeights(t *testing.T) {
	short := newBuilder().add(7, "main.hot", "main.main").profile(t, "short")
	long := newBuilder().add(50_000, "main.cold", "main.main").add(50_000, "main.warm", "main.main").profile(t, "long")
	m, err := Merge([]Part{{short, 3}, {long, 1}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{"main.hot": 0.75, "main.cold": 0.125, "main.warm": 0.125} {
		if got := shareOf(m.Profile, name); math.Abs(got-want) > 1e-6 {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	if m.Stacks != 3 || m.Dropped != 0 || m.Lost != 0 {
		t.Errorf("%+v", m)
	}
	// The parts are what they were.
	if short.Samples() != 7 || len(short.p.Mapping) != 1 || short.p.Function[0].Filename != "/home/somebody/src/x.go" {
		t.Error("merging changed a part")
	}
}

// TestMergeTrims: nothing of the machine is left, same stacks become one, and
// the same parts give the same bytes.
func TestMergeTrims(t *testing.T) {
	b := newBuilder().add(1, "main.f", "main.main").add(2, "main.f", "main.main").add(3, "main.f", "main.main")
	m, err := Merge([]Part{{b.profile(t, "x"), 1}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	text := m.Profile.p.String()
	for _, secret := range []string{"somebody", "secret", "samples"} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is left:\n%s", secret, text)
		}
	}
	if m.Stacks != 1 || m.Profile.p.TimeNanos != 0 {
		t.Errorf("%d stacks at %d", m.Stacks, m.Profile.p.TimeNanos)
	}
	again, err := Merge([]Part{{b.profile(t, "x"), 1}}, 0)
	if err != nil || !bytes.Equal(m.Data, again.Data) {
		t.Errorf("the same parts gave other bytes (%v)", err)
	}
}

// TestMergeFits: the rarest stacks go, and only they.
func TestMergeFits(t *testing.T) {
	b := newBuilder()
	for i := range 2000 {
		b.add(int64(1+i), fmt.Sprintf("main.function%d", i*7919), "main.main")
	}
	const most = 8 << 10
	m, err := Merge([]Part{{b.profile(t, "x"), 1}}, most)
	if err != nil {
		t.Fatal(err)
	}
	if len(m.Data) > most || len(m.Data) < most*9/10 {
		t.Errorf("%d bytes, want just below %d", len(m.Data), most)
	}
	if m.Dropped == 0 || m.Lost <= 0 || m.Lost > float64(m.Dropped)/float64(m.Stacks) {
		t.Errorf("%d of %d dropped, %v of the time", m.Dropped, m.Stacks, m.Lost)
	}
	if shareOf(m.Profile, fmt.Sprintf("main.function%d", 1999*7919)) == 0 {
		t.Error("the hottest stack was dropped")
	}
	if _, err := Merge([]Part{{b.profile(t, "x"), 1}}, 10); err == nil || !strings.Contains(err.Error(), "not enough for a single stack") {
		t.Errorf("10 bytes: %v", err)
	}
}

// TestMergeRefuses: weights that mean nothing, and what the compiler refuses.
func TestMergeRefuses(t *testing.T) {
	p := newBuilder().add(1, "main.f").profile(t, "x")
	for _, w := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		if _, err := Merge([]Part{{p, w}}, 0); err == nil {
			t.Errorf("the weight %v was taken", w)
		}
	}
	if _, err := Merge(nil, 0); err == nil {
		t.Error("nothing was merged")
	}
	old := newBuilder().add(1, "main.f")
	old.p.Function[0].StartLine = 0
	if _, err := Merge([]Part{{old.profile(t, "old"), 1}}, 0); err == nil || !strings.Contains(err.Error(), "1.20") {
		t.Errorf("%v", err)
	}
}

// preprofile is what the Go compiler reads from a profile.
func preprofile(t *testing.T, data []byte) string {
	t.Helper()
	tool, err := exec.LookPath("go")
	if err != nil {
		t.Skip("the go command is not installed")
	}
	file := filepath.Join(t.TempDir(), "default.pgo")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command(tool, "tool", "preprofile", "-i", file).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

// TestMergeCuts: before any stack is dropped, all lose what the compiler does
// not read, and it reads the same as before.
func TestMergeCuts(t *testing.T) {
	b := newBuilder()
	for i := range 300 {
		stack := []string{"+main.in", "main.leaf", "main.mid"}
		for j := range 20 {
			stack = append(stack, fmt.Sprintf("main.caller%d", (i*7919+j*104729)%1000))
		}
		b.add(int64(1+i), stack...)
	}
	p := b.profile(t, "x")
	whole, err := Merge([]Part{{p, 1}}, 0)
	if err != nil || whole.Cut || whole.Stacks != 300 {
		t.Fatalf("%+v, %v", whole, err)
	}
	cut, err := Merge([]Part{{p, 1}}, len(whole.Data)/2)
	if err != nil || !cut.Cut || cut.Stacks != 1 || cut.Dropped != 0 || cut.Lost != 0 {
		t.Fatalf("%+v, %v", cut, err)
	}
	if a, b := preprofile(t, whole.Data), preprofile(t, cut.Data); a != b {
		t.Errorf("the compiler reads\n%s\nand after cutting\n%s", a, b)
	}
}

// TestMergeForCompiler: the Go compiler's own reader takes the file, and sees
// the innermost calls with their weights.
func TestMergeForCompiler(t *testing.T) {
	a := newBuilder().add(1, "main.leaf", "main.mid", "main.main").profile(t, "a")
	b := newBuilder().add(9, "main.leaf", "main.main").profile(t, "b")
	m, err := Merge([]Part{{a, 1}, {b, 4}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	out := preprofile(t, m.Data)
	want := "GO PREPROFILE V1\nmain.main\nmain.leaf\n5 80000000000\nmain.mid\nmain.leaf\n5 20000000000\n"
	if out != want {
		t.Errorf("the compiler reads\n%s\nwant\n%s", out, want)
	}
}
