package cache

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"
)

func objects() []Object {
	return []Object{
		{Path: "/a"},
		{Path: "/a", Size: 41},
		{Path: "/a", Size: 49},
		{Path: "/a", Size: 50},
		{Path: "/a", Size: 32 << 10, Tag: "a b&c"},
		{Path: "/b/1", Delay: 20 * time.Millisecond, Private: true},
		{Path: "/c", Stream: 40 * time.Millisecond, Size: 1000},
		{Path: "/d", Age: time.Second, Stale: time.Minute, Versioned: true},
	}
}

func TestTargetAndBack(t *testing.T) {
	seen := map[string]bool{}
	for _, o := range objects() {
		u, err := url.Parse(o.Target())
		if err != nil {
			t.Fatal(err)
		}
		if got, err := parse(u); err != nil || got != o {
			t.Errorf("%s is %+v, %v; want %+v", o.Target(), got, err, o)
		}
		body := o.Body(0)
		if len(body) != max(o.Size, MinSize) || !json.Valid(body) {
			t.Errorf("%s: %d bytes: %.80s", o.Target(), len(body), body)
		}
		if seen[string(body)] {
			t.Errorf("%s has the body of another", o.Target())
		}
		seen[string(body)] = true
		if bytes.Equal(body, o.Body(1)) == o.Versioned {
			t.Errorf("%s: versions make a difference: %v", o.Target(), !o.Versioned)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, o := range objects() {
		f.Add(o.Target())
	}
	f.Add("/?size=-1&delay=1h")
	f.Fuzz(func(t *testing.T, target string) {
		u, err := url.Parse(target)
		if err != nil {
			return
		}
		if o, err := parse(u); err == nil && (len(o.Body(0)) != max(o.Size, MinSize) || o.Delay < 0) {
			t.Errorf("%q: %+v", target, o)
		}
	})
}

func TestServer(t *testing.T) {
	s, err := Start()
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	get := func(target string) (*http.Response, []byte) {
		t.Helper()
		resp, err := http.Get("http://" + s.Address() + target)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp, body
	}
	s.SetVersion(7)
	for _, o := range objects() {
		began := time.Now()
		resp, body := get(o.Target())
		if resp.StatusCode != 200 || !bytes.Equal(body, o.Body(7)) {
			t.Errorf("%s: %s, %.80s", o.Target(), resp.Status, body)
		}
		if took := time.Since(began); took < o.Delay+o.Stream*(pieces-1)/pieces {
			t.Errorf("%s took %v", o.Target(), took)
		}
		if tag := resp.Header.Get("Surrogate-Key"); tag != o.Tag {
			t.Errorf("%s has the tag %q", o.Target(), tag)
		}
	}
	for target, want := range map[string]string{
		"/x": "max-age=600", "/x?private=1": "private", "/x?age=1s&stale=60s": "max-age=1, stale-while-revalidate=60",
	} {
		if resp, _ := get(target); resp.Header.Get("Cache-Control") != want {
			t.Errorf("%s: %q, want %q", target, resp.Header.Get("Cache-Control"), want)
		}
	}
	before := s.Requests()
	for _, target := range []string{"/x?size=39", "/x?size=9999999", "/x?delay=-1s", "/x?age=old"} {
		if resp, _ := get(target); resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%s: %s", target, resp.Status)
		}
	}
	if n := s.Requests() - before; n != 4 {
		t.Errorf("4 requests are counted as %d", n)
	}
	s.SetDelay(30 * time.Millisecond)
	began := time.Now()
	get("/x")
	if time.Since(began) < 30*time.Millisecond {
		t.Error("the delay of all is not waited for")
	}
}
