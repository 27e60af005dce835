package lane

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"millrace/internal/observe/meter"
	"millrace/internal/route/site"
	"millrace/internal/wire/negotiate"
	"millrace/internal/wire/send"
)

// TestNames: each header that is kept has the name under which it is found.
func TestNames(t *testing.T) {
	for id, name := range names {
		if got := lookupHeader([]byte(name)); got != headerID(id) {
			t.Errorf("%q is %d, not %d", name, got, id)
		}
	}
}

func TestHottest(t *testing.T) {
	var secure Scope
	secure.Secure = true
	sites := site.NewTable()
	sites.Add(site.New(7, nil), []string{"a.example"})
	secure.Sites.Store(sites)
	l := New(Options{}, Settings{}, []*Scope{new(Scope), &secure}, meter.New())
	defer l.Close()
	put := func(id uint64, target string, d demands, v variant) {
		t.Helper()
		v.response = &response{offered: offered{answer: &send.Answer{Body: []byte("x"), Size: 1}}, cost: 100}
		if !l.table.put(key{site: id, target: target}, d, v) {
			t.Fatal("it was not taken")
		}
	}
	put(7, "/cold", demands{}, variant{})
	put(7, "/hot", demands{}, variant{negotiated: true, preference: negotiate.Of([]string{"gzip, br"})})
	put(7, "/hot", demands{}, variant{negotiated: true})
	put(7, "/vary", demands{varyOn: []headerID{hdrHost, hdrAccept, hdrCookie}}, variant{values: []string{"A.example:1", "image/webp", ""}})
	put(8, "/gone", demands{}, variant{})
	for i := range l.table.slots { // as find does
		if e := l.table.slots[i].Load(); e != nil {
			e.recent.Store(true)
		}
	}
	l.ResetRecent()
	for i := range l.table.slots {
		if e := l.table.slots[i].Load(); e != nil && e.target == "/hot" {
			e.recent.Store(true)
		}
	}
	hot := []HotRequest{
		{Secure: true, Host: "a.example", Target: "/hot", Fields: map[string]string{"Accept-Encoding": "br, gzip"}},
		{Secure: true, Host: "a.example", Target: "/hot"},
	}
	if diff := cmp.Diff(hot, l.HotRequests(2, 1000)); diff != "" {
		t.Error(diff)
	}
	if got := l.HotRequests(2, 100); len(got) != 1 { // bytes
		t.Error(got)
	}
	all := map[string]bool{}
	for _, a := range l.HotRequests(100, 1000) {
		all[fmt.Sprint(a.Host, a.Target, a.Header())] = true
	}
	want := map[string]bool{
		"a.example/hotmap[Accept-Encoding:[br, gzip]]": true, "a.example/hotmap[]": true,
		"a.example/coldmap[]": true, "A.example:1/varymap[Accept:[image/webp]]": true,
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Error(diff)
	}
	off := New(Options{Off: true}, Settings{}, nil, meter.New())
	defer off.Close()
	off.ResetRecent()
	if got := off.HotRequests(9, 999); got != nil {
		t.Error(got)
	}
}
