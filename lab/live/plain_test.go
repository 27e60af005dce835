package live

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/lab/record"
)

// TestPlain holds what a log of a measurement looks like: text, no JSON, no
// line twice, figures every few seconds, and nothing that commands a terminal.
func TestPlain(t *testing.T) {
	var out bytes.Buffer
	watch := Plain(&out)
	at := func(s float64) time.Time { return noon().Add(time.Duration(s * float64(time.Second))) }
	watch(record.Event{Time: at(0), Kind: record.EventStep, Text: "building lab/bench/subjects/sendfile"})
	watch(record.Event{Time: at(0), Kind: record.EventStep, Text: "building lab/bench/subjects/sendfile"})
	watch(record.Event{Time: at(1), Kind: record.EventNote, Text: "nginx is left out:\ninstall \x1b[2Jnginx"})
	for i := range 48 {
		watch(record.Event{
			Time: at(1 + float64(i)/4), Kind: record.EventTick, Arm: "A", Workload: "tcp", Done: 0.25, Left: 8 * time.Second,
			Rate: 1234 + float64(i/24), P50: time.Millisecond, P99: 2 * time.Millisecond, Errors: 3,
		})
	}
	watch(record.Event{Time: at(14), Kind: record.EventLook, Text: "look 1 of 3", Verdicts: verdicts().Verdicts[:1]})
	watch(record.Event{Time: at(15), Kind: record.EventEnd, Text: "said by the summary"})
	want := `building lab/bench/subjects/sendfile
note: nginx is left out: install [2Jnginx
25 %, A, tcp, 1,234 requests/s, p50 1.00 ms, p99 2.00 ms, 3 errors, 8 s left
25 %, A, tcp, 1,235 requests/s, p50 1.00 ms, p99 2.00 ms, 3 errors, 8 s left
look 1 of 3
  ` + verdicts().Verdicts[0].Sentence + "\n"
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestPlainWithoutReader(t *testing.T) {
	full := &fullDisk{}
	watch := Plain(full)
	watch(record.Event{Kind: record.EventStep, Text: "one"})
	watch(record.Event{Kind: record.EventStep, Text: "two"})
	if full.writes != 1 {
		t.Errorf("%d writes after one that failed", full.writes)
	}
}
