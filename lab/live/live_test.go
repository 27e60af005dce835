package live

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"math"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"millrace/lab/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestNDJSON(t *testing.T) {
	var out bytes.Buffer
	watch := NDJSON(&out)
	events := []record.Event{
		{Time: noon(), Kind: record.EventStep, Text: "two\nlines"},
		{Time: noon(), Kind: record.EventTick, Arm: "A", Rate: 1.5, P50: time.Millisecond, Done: 0.25},
		{Time: noon(), Kind: record.EventLook, Verdicts: []record.Verdict{{Outcome: record.Better}}},
	}
	for _, e := range events {
		watch(e)
	}
	watch(record.Event{Kind: record.EventTick, Rate: math.NaN()}) // JSON has no word for it
	lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
	if len(lines) != len(events) {
		t.Fatalf("%d lines of %d events:\n%s", len(lines), len(events), out.String())
	}
	for i, l := range lines {
		var got record.Event
		if err := json.Unmarshal([]byte(l), &got); err != nil {
			t.Fatalf("%s: %v", l, err)
		}
		if d := cmp.Diff(events[i], got); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	}
	out.Reset()
	watch(record.Event{Kind: record.EventNote})
	if !strings.Contains(out.String(), `"time":"2`) || strings.Contains(out.String(), `"time":"0001`) {
		t.Errorf("an event without a time: %s", out.String())
	}
}

// A full disk fails each write.
type fullDisk struct{ writes int }

func (f *fullDisk) Write([]byte) (int, error) { f.writes++; return 0, errors.New("full") }

func TestNDJSONWithoutReader(t *testing.T) {
	var out fullDisk
	watch := NDJSON(&out)
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() { watch(record.Event{Kind: record.EventTick}) })
	}
	wait.Wait()
	if out.writes != 1 {
		t.Errorf("%d writes after the first had failed", out.writes-1)
	}
}

func TestIsTerminal(t *testing.T) {
	f, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if IsTerminal(f) || IsTerminal(nil) {
		t.Error("taken for a terminal")
	}
}

// screen is a file to draw on, and what was drawn once it is closed.
func screen(t *testing.T) (f *os.File, drawn func() string) {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var (
		text []byte
		wait sync.WaitGroup
	)
	wait.Go(func() { text, _ = io.ReadAll(r) })
	return w, func() string {
		w.Close()
		wait.Wait()
		r.Close()
		return string(text)
	}
}

func TestShow(t *testing.T) {
	before := log.Writer()
	f, drawn := screen(t)
	trouble := errors.New("the target died")
	err := Show(t.Context(), f, "load http://x", func(ctx context.Context, watch record.Watch) error {
		var wait sync.WaitGroup
		for range 4 {
			wait.Go(func() {
				for range 10 {
					watch(record.Event{Kind: record.EventTick, Rate: 1000})
				}
			})
		}
		wait.Wait()
		log.Print("from elsewhere")
		return trouble
	})
	if text := colours.ReplaceAllString(drawn(), ""); !regexp.MustCompile(`failed after \d+ s: load http://x`).MatchString(text) {
		t.Errorf("the last line is not in %q", text)
	}
	if !errors.Is(err, trouble) {
		t.Errorf("Show returned %v", err)
	}
	if log.Writer() != before {
		t.Error("the log was not given back")
	}
}

// TestShowEnds has the context end as a signal ends it: Show waits for the
// work, and gives it time to keep what was measured.
func TestShowEnds(t *testing.T) {
	f, drawn := screen(t)
	ctx, cancel := context.WithCancel(t.Context())
	kept := false
	err := Show(ctx, f, "load http://x", func(ctx context.Context, watch record.Watch) error {
		watch(record.Event{Kind: record.EventStep, Text: "loading"})
		cancel()
		<-ctx.Done()
		kept = true
		return nil
	})
	if text := colours.ReplaceAllString(drawn(), ""); !regexp.MustCompile(`ended early after \d+ s: load http://x`).MatchString(text) {
		t.Errorf("the last line is not in %q", text)
	}
	if err != nil || !kept {
		t.Errorf("Show returned %v, kept %v", err, kept)
	}
}
