package purge

import (
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
)

// TestForm: a journal of the first form, and an announcement that waits, mean what they
// always did. Machines of two versions read each other's announcements while they are
// upgraded.
func TestForm(t *testing.T) {
	kept, err := os.ReadFile(filepath.Join("testdata", "form", "purges"))
	if err != nil {
		t.Fatal(err)
	}
	index := New(0)
	if err := index.Restore(kept); err != nil {
		t.Fatal(err)
	}
	const at = 1_790_000_000_000_000_000 // of an object that was fetched before
	for url, want := range map[string]State{
		"http://a.example/x": Gone, "http://a.example/below/y": Gone, "http://a.example/glob/z": Stale,
		"http://h.example/": Stale, "http://a.example/other": Valid,
	} {
		if got := index.State(&Object{URL: url, At: at}, nil); got != want {
			t.Errorf("%s is %v, want %v", url, got, want)
		}
	}
	for tag, want := range map[string]State{"news": Gone, "later": Stale, "other": Valid} {
		if got := index.State(&Object{URL: "http://a.example/other", Tags: []string{tag}, At: at}, nil); got != want {
			t.Errorf("the tag %s is %v, want %v", tag, got, want)
		}
	}
	if index.Run() != "a run" {
		t.Errorf("the run is %q", index.Run())
	}
	kept[len("millrace purges ")]++
	if err := New(0).Restore(kept); err == nil {
		t.Error("a journal of the next form is read")
	}

	var b outbox
	b.open(filepath.Join("testdata", "form"), slog.New(slog.DiscardHandler))
	if len(b.list) != 1 || b.list[0].ID != "ABC" || b.list[0].Purge != (Selector{Tag: "news", Hard: true}) {
		t.Errorf("the outbox has %+v", b.list)
	}
	for text, a := range map[string]announcement{
		`{"id":"ABC","purge":{"tag":"news","hard":true}}`:          {ID: "ABC", Purge: Selector{Tag: "news", Hard: true}},
		`{"id":"ABC","purge":{"url":"http://a.example/"}}`:         {ID: "ABC", Purge: Selector{URL: "http://a.example/"}},
		`{"id":"ABC","purge":{"prefix":"a.example/","hard":true}}`: {ID: "ABC", Purge: Selector{Prefix: "a.example/", Hard: true}},
		`{"id":"ABC","purge":{"glob":"*/x"}}`:                      {ID: "ABC", Purge: Selector{Glob: "*/x"}},
		`{"id":"ABC","purge":{"host":"a.example"}}`:                {ID: "ABC", Purge: Selector{Host: "a.example"}},
		`{"id":"ABC","purge":{"all":true}}`:                        {ID: "ABC", Purge: Selector{All: true}},
		`{"id":"ABC","hello":true}`:                                {ID: "ABC", Hello: true},
	} {
		var read announcement
		if err := json.Unmarshal([]byte(text), &read); err != nil || read != a {
			t.Errorf("%s is read as %+v, %v", text, read, err)
		}
		if written, err := json.Marshal(a); err != nil || string(written) != text {
			t.Errorf("%s is written, and was %s, %v", written, text, err)
		}
	}
}
