package wscmd

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"

	"millrace/websocket/control"
)

func TestEvents(t *testing.T) {
	const stream = "\ufeff: a comment\n\nevent: nothing\n\nid: 1\ndata: one\n\n" +
		"data:two\r\ndata:  and more\rid: 2\r\n\r\nretry: 5\nnoise\ndata\nevent: x\n\n" +
		"id: bad\x00\ndata: {}\n\nid\ndata: end\n\nid: 3\n\nid: 4\ndata: cut off\n"
	want := []event{
		{"1", "", "one"},
		{"2", "", "two\n and more"},
		{"2", "x", ""},
		{"2", "", "{}"},
		{"", "", "end"},
	}
	const last = "3" // of an event without data; the one that is cut off has none
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(stream), "in bytes": iotest.OneByteReader(strings.NewReader(stream)),
	} {
		s := newEvents(r)
		var got []event
		var err error
		for {
			var e event
			if e, err = s.next(); err != nil {
				break
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(event{})); diff != "" || !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v (-want +got):\n%s", name, err, diff)
		}
		if s.id != last {
			t.Errorf("%s: it would go on behind %q, want %q", name, s.id, last)
		}
	}
}

// TestEventsDoNotWait: an event is there as soon as its last line is, also
// where that ends in CR and an LF may follow.
func TestEventsDoNotWait(t *testing.T) {
	r, w := io.Pipe()
	defer r.Close()
	go func() { _, _ = io.WriteString(w, "data: x\r\r") }() // ends when it is read, or with the pipe
	if e, err := newEvents(r).next(); err != nil || e.data != "x" {
		t.Errorf("%+v, %v", e, err)
	}
}

func FuzzEvents(f *testing.F) {
	for _, s := range []string{"data: x\n\n", "id: 1\r\ndata\r\n\r\n", ":\n\n\ufeff", "data: a\ndata: b\n\n", "\r\n\n\r"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, stream string) {
		read := func(r io.Reader) (all []event) {
			s := newEvents(r)
			for {
				e, err := s.next()
				if err != nil {
					return all
				}
				all = append(all, e)
			}
		}
		whole, pieces := read(strings.NewReader(stream)), read(iotest.OneByteReader(strings.NewReader(stream)))
		if !slices.Equal(whole, pieces) {
			t.Errorf("%q is %q at once and %q in pieces", stream, whole, pieces)
		}
		lf := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(stream)
		if same := read(strings.NewReader(lf)); !slices.Equal(whole, same) {
			t.Errorf("%q is %q, and %q with other line ends", stream, whole, same)
		}
	})
}

func TestChannelsURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://a": "http://a/", "http://a/": "http://a/", "https://a/live": "https://a/live/", "https://a/live/": "https://a/live/",
		"ws://a/live/ws": "http://a/live/", "wss://a:1/ws": "https://a:1/", "http://a/live/sse?channel=x": "http://a/live/", "http://a/publish": "http://a/",
	} {
		if got, err := channelsURL(in); got != want || err != nil {
			t.Errorf("%q: %q, %v; want %q", in, got, err, want)
		}
	}
	for _, in := range []string{"", "a", "a:80", "ftp://a/", "/live/", "http://%zz"} {
		if got, err := channelsURL(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func served(route, host, kind string) control.Route {
	return control.Route{Route: route, Host: host, Kind: kind}
}

func TestChoose(t *testing.T) {
	all := []control.Route{served("/", "", "echo"), served("/live/", "", "channels"), served("/live/", "b.example", "channels"), served("/x/", "", "proxy")}
	for _, c := range []struct {
		route, host, fails string
		from               []control.Route
	}{
		{"", "", "", all[:2]},
		{"", "", "no channels", all[:1]},
		{"", "", "2 routes", all},
		{"/live/", "", "", all},
		{"/live/", "b.example", "", all[2:]},
		{"/live/", "", "2 routes", []control.Route{all[2], served("/live/", "c.example", "channels")}},
		{"b.example/live/", "b.example", "", all},
		{"/x/", "", "no channels at /x/", all},
	} {
		got, err := channelFlags{Route: c.route}.choose(slices.Clone(c.from))
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("%q: %v, want %q", c.route, err, c.fails)
			}
		case err != nil || got.Host != c.host || got.Kind != "channels":
			t.Errorf("%q: %+v, %v", c.route, got, err)
		}
	}
}

func TestPublishedData(t *testing.T) {
	const text, json = "text/plain; charset=utf-8", "application/json"
	for _, c := range []struct {
		text, json, stdin string
		want, contentType string // "" when it cannot be meant
	}{
		{"hello", "", "", "hello", text},
		{"-", "", "a\nb\n", "a\nb", text},
		{"", `{"a": 1}`, "", `{"a": 1}`, json},
		{"", "-", "[1]\n", "[1]\n", json},
		{"", "hello", "", "", ""},
		{"", "-", "hello", "", ""},
		{"x", "1", "", "", ""},
		{"", "", "", "", ""},
	} {
		v := Publish{Channel: "news", Text: c.text, JSON: c.json}
		data, contentType, err := v.data(strings.NewReader(c.stdin))
		if string(data) != c.want || contentType != c.contentType || (err != nil) != (c.contentType == "") {
			t.Errorf("%+v: %q, %s, %v", c, data, contentType, err)
		}
	}
}

func TestOneLine(t *testing.T) {
	for in, want := range map[string]string{
		"{\n \"a\": 1\n}": `{"a":1}`, "plain\ntext": `"plain\ntext"`, "": `""`, "7": "7",
	} {
		if got := oneLine(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}

func TestBelow(t *testing.T) {
	got := below([]string{"http://127.0.0.1:1", "https://127.0.0.1:2/", "unix:x.sock"}, true, "/ws")
	want := []string{"ws://127.0.0.1:1/ws", "wss://127.0.0.1:2/ws", "unix:x.sock, at /ws"}
	if !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}
