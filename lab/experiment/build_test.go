package experiment

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"millrace/lab/record"
	"millrace/lab/subject"
)

// However long building took, a run has its time for measuring.
func TestBuildingLeavesTimeToMeasure(t *testing.T) {
	for spent, counts := range map[time.Duration]time.Duration{time.Second: time.Second, buildShare: buildShare, 5 * time.Minute: buildShare} {
		synctest.Test(t, func(t *testing.T) {
			s := NewStage(Env{Mode: record.Quick}, &record.Result{})
			time.Sleep(spent)
			s.Built()
			if want := Budget(record.Quick) - counts; s.Left() != want {
				t.Errorf("after %v of building %v are left, want %v", spent, s.Left(), want)
			}
		})
	}
}

func TestAnnounce(t *testing.T) {
	bench := &subject.Bench{Dir: t.TempDir()}
	list := []Program{{Folder: "one"}, {Folder: "two", Env: []string{"GOARCH=386"}}}
	var text []string
	s := NewStage(Env{Bench: bench, Watch: func(e record.Event) { text = append(text, e.Text) }}, &record.Result{})
	s.announce(list)
	if len(text) != 1 || !strings.HasPrefix(text[0], "2 of 2 programs") {
		t.Fatalf("said %q", text)
	}
	dir := filepath.Join(bench.Dir, "out", "lab")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "one"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	s.announce(list)
	s.announce(list[:1]) // nothing to build, nothing to say
	if len(text) != 2 || !strings.HasPrefix(text[1], "1 of 2 programs") {
		t.Errorf("said %q", text)
	}
}

// What could not be built says why, under the key that it was asked for.
func TestBuildSaysWhatIsMissing(t *testing.T) {
	none, err := NewStage(Env{}, &record.Result{}).Build(t.Context(), []Program{{Key: "one", Folder: "one"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := none.Path("one"); !errors.Is(err, ErrNoSources) {
		t.Errorf("without a checkout: %v", err)
	}
	s := NewStage(Env{Bench: &subject.Bench{Dir: t.TempDir()}}, &record.Result{})
	programs, err := s.Build(t.Context(), []Program{{Key: "one", Folder: "one"}, {Key: "small", Folder: "two"}})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"one": `subject "one"`, "small": `subject "two"`, "two": "two was not built"} {
		if _, err := programs.Path(key); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", key, err)
		}
	}
}
