package websocket

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"millrace/lab/experiment"
	"millrace/lab/record"
	"millrace/lab/trial"
)

const goodLine = `{"connections":3,"succeeded":2,"failed":1,"unclean":0,"first_error":"refused","open_ns":1000,"echo_ns":200,"close_ns":30,` +
	`"connect":[[100,1],[200,1]],"upgrade":[[300,2]],"echo":[[400,2]]}`

func TestParseReport(t *testing.T) {
	r, err := parseReport([]byte(goodLine))
	if err != nil || r.Succeeded != 2 || r.First != "refused" || len(r.Connect) != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	if v := addUp([]report{r, r}).values(); v["succeeded"] != 4 || v["failed"] != 2 || v["step_ns"] != 1230 || v["connect_p99_ns"] < 190 || v["echo_p50_ns"] < 390 {
		t.Errorf("%v", v)
	}
	for name, edit := range map[string][2]string{
		"not all counted":   {`"failed":1`, `"failed":0`},
		"more than all":     {`"succeeded":2`, `"succeeded":4`},
		"none":              {`"connections":3`, `"connections":0`},
		"too many measured": {`[[300,2]]`, `[[300,4]]`},
		"negative count":    {`[[300,2]]`, `[[300,-2]]`},
		"negative time":     {`[[300,2]]`, `[[-300,2]]`},
		"negative phase":    {`"echo_ns":200`, `"echo_ns":-1`},
		"cut off":           {`"echo":[[400,2]]}`, `"echo":[[40`},
	} {
		if _, err := parseReport([]byte(strings.Replace(goodLine, edit[0], edit[1], 1))); err == nil {
			t.Errorf("%s is a report", name)
		}
	}
}

func FuzzParseReport(f *testing.F) {
	f.Add([]byte(goodLine))
	f.Fuzz(func(t *testing.T, line []byte) {
		if r, err := parseReport(line); err == nil && r.Succeeded+r.Failed != r.Connections {
			t.Errorf("%q became %+v", line, r)
		}
	})
}

func TestParseAvailable(t *testing.T) {
	for text, want := range map[string]uint64{
		"MemTotal: 5 kB\nMemAvailable:    2048 kB\n": 2 << 20,
		"MemTotal: 5 kB\n":                           0,
		"MemAvailable: much kB\n":                    0,
		"MemAvailable: 99999999999999999999 kB\n":    0,
		"MemAvailable: 12\n":                         0,
		"":                                           0,
	} {
		if got := parseAvailable([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

func FuzzParseAvailable(f *testing.F) {
	f.Add([]byte("MemAvailable: 1 kB\n"))
	f.Add([]byte("MemAvailable:\nMemAvailable: 18014398509481983 kB"))
	f.Fuzz(func(t *testing.T, text []byte) {
		if n := parseAvailable(text); n%1024 != 0 {
			t.Fatalf("%d bytes are no KiB", n)
		}
	})
}

// fakeClient is a shell script in the client's place.
func fakeClient(t *testing.T, script string) []string {
	t.Helper()
	if _, err := os.Stat("/bin/sh"); err != nil {
		t.Skip("no /bin/sh to play the client")
	}
	return []string{"/bin/sh", "-c", script}
}

func TestRunClients(t *testing.T) {
	good := fakeClient(t, `echo open; read a; echo echoed; read b; [ "$a $b" = "echo close" ] && echo '`+goodLine+`'`)
	held := 0
	r, err := runClients(t.Context(), [][]string{good, good}, func() { held++ })
	if err != nil || r.Connections != 6 || held != 1 {
		t.Errorf("%+v, %v, held %d times", r, err, held)
	}
	for name, c := range map[string]struct{ script, want string }{
		"ends":        {`echo open; echo no memory >&2; exit 1`, "no memory"},
		"other words": {`echo hello; read a`, "hello"},
		"nonsense":    {`echo open; read a; echo echoed; read b; echo '{}'`, "0 of 0"},
		"silent end":  {`exit 0`, "ended early"},
	} {
		_, err := runClients(t.Context(), [][]string{good, fakeClient(t, c.script)}, func() {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", name, err, c.want)
		}
	}
	if _, err := runClients(t.Context(), [][]string{{"/nowhere/client"}}, func() {}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no client: %v", err)
	}
}

// TestRunClientsCancelled ends the context while a client keeps silent.
func TestRunClientsCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	silent := fakeClient(t, `echo open; read a; echo echoed; read b; exec sleep 600`)
	_, err := runClients(ctx, [][]string{silent}, cancel)
	if err == nil {
		t.Error("no error")
	}
}

// newRamp is a run of the ramp in a mode.
func newRamp(t *testing.T, mode record.Mode) *ramp {
	t.Helper()
	spec, err := experiment.Read("ws-echo-ramp", mode)
	if err != nil {
		t.Fatal(err)
	}
	return &ramp{Run: experiment.NewRun(experiment.Env{Mode: mode, Work: t.TempDir()}, spec, &record.Result{}), failed: map[string]int{}, why: map[string]string{}}
}

// Steps that a process has not descriptors enough for are left out, and said.
func TestCut(t *testing.T) {
	w := newRamp(t, record.Full)
	if err := w.cut(1024, nil); err != nil || len(w.Spec.Workloads) != 3 || len(w.Res.Notes) != 1 {
		t.Errorf("%d steps, %q, %v", len(w.Spec.Workloads), w.Res.Notes, err)
	}
	if w = newRamp(t, record.Full); w.cut(20_000, nil) != nil || len(w.Spec.Workloads) < 12 {
		t.Errorf("%d steps, %q", len(w.Spec.Workloads), w.Res.Notes)
	}
	if err := newRamp(t, record.Full).cut(250, nil); !errors.Is(err, errFew) {
		t.Error(err)
	}
}

func TestClientCommand(t *testing.T) {
	for i, share := range []string{"3", "4"} {
		line := strings.Join(clientCommand("/bin/client", "127.0.0.1:81", "/echo", i, 2, 7, time.Second), " ")
		for _, want := range []string{" -address 127.0.0.1:81 ", " -path /echo ", " -connections " + share + " ", " -sources 1 "} {
			if !strings.Contains(line, want) {
				t.Errorf("client %d: %q is missing in %s", i, want, line)
			}
		}
	}
}

// An arm that broke twice in a round is not asked for more until the next begins.
func TestBroken(t *testing.T) {
	w := newRamp(t, record.Quick)
	w.failed["xnet"] = failures
	slot := trial.TaskSlot{Arm: "xnet"}
	if got, err := w.step(t.Context(), slot, w.Spec.Workloads[0]); err != nil || got.Values != nil || got.Failed != 0 {
		t.Errorf("%+v, %v", got, err)
	}
	slot.Arm = "gws" // nothing was built
	if _, err := w.step(t.Context(), slot, w.Spec.Workloads[0]); err == nil {
		t.Error("a step without a client")
	}
}

// The sentence answers what was asked, with figures, and says nothing that was not
// seen.
func TestAnswer(t *testing.T) {
	held := func(w *ramp, arm string, connections string, succeeded, failed, rss float64) {
		v := map[string]float64{"succeeded": succeeded, "failed": failed}
		if rss > 0 {
			v["rss_bytes_per_connection"] = rss
		}
		w.Res.Samples = append(w.Res.Samples, record.Sample{Arm: arm, Workload: connections + " connections", Values: v})
	}
	w := newRamp(t, record.Quick)
	w.Chosen = w.Spec.Workloads[:0:0]
	for _, s := range w.Spec.Workloads {
		if s.Quick {
			w.Chosen = append(w.Chosen, s)
		}
	}
	w.report()
	if w.Res.Answer != "" || len(w.Res.Tables) != 0 {
		t.Errorf("of nothing: %+v", w.Res)
	}
	for _, name := range []string{"xnet", "xnet-386", "millrace"} {
		w.Res.Arms = append(w.Res.Arms, record.Arm{Name: name})
	}
	w.Res.Arms = append(w.Res.Arms, record.Arm{Name: "xnet′", Placebo: "xnet"}, record.Arm{Name: "gws", Skipped: "not here"})
	held(w, "xnet", "100", 100, 0, 33_000)
	held(w, "xnet", "5000", 5000, 0, 22_700)
	held(w, "xnet-386", "5000", 5000, 0, 20_000)
	held(w, "millrace", "5000", 5000, 0, 1600)
	w.report()
	if want := "no server failed up to 5,000 connections; x/net, said to break at 1,500, held all of them with 22.7 KB each, millrace with 1.60 KB each"; w.Res.Answer != want {
		t.Errorf("all held: %s", w.Res.Answer)
	}
	held(w, "xnet-386", "2000", 1500, 500, 0)
	w.why["xnet-386"] = "reset\nand more"
	w.Res.Tables, w.Res.Charts = nil, nil
	w.report()
	want := "x/net on 32 bits failed at 2,000 connections; the others held 5,000; x/net, said to break at 1,500, held all of them with 22.7 KB each, millrace with 1.60 KB each"
	if w.Res.Answer != want {
		t.Errorf("one broke: %s", w.Res.Answer)
	}
	var rows []string
	for _, row := range w.Res.Tables[0].Rows {
		rows = append(rows, strings.Join(row, "|"))
	}
	if got, want := strings.Join(rows, "\n"), "100|holds|100 / 0|–|–\n2,000|crashes|–|1,500 / 500|–\n5,000|crashes|5,000 / 0|5,000 / 0|5,000 / 0"; got != want {
		t.Errorf("published and measured:\n%s", got)
	}
	if row := w.Res.Tables[1].Rows[1]; strings.Join(row, "|") != "xnet-386|2000|5000|reset" {
		t.Errorf("breaking point: %q", row)
	}
	if c := w.Res.Charts; len(c) != 3 || len(c[0].Series) != 3 || len(c[1].Series) != 6 || len(c[2].Series[0].Points) != 2 {
		t.Errorf("charts: %+v", c)
	}
}
