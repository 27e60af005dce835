package object_test

import (
	"net/http"
	"testing"
	"time"

	"millrace/cache/object"
	"millrace/cache/purge"
)

// A head from the slower tiers, whatever it says, makes an object that can be
// looked at, or none.
func FuzzDecodeRecord(f *testing.F) {
	o := &object.Object{Status: 200, Fields: object.FieldsOf(http.Header{"Etag": {`"1"`}}), Vary: []string{"Accept"}, By: []string{"x"}}
	head, err := o.Encode("epoch", 0)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(head)
	f.Add([]byte(`{"v":1,"varies":[["Accept"],[]]}`))
	f.Add([]byte(`{"v":1,"status":404,"header":{"A":[]},"vary":["A","A"],"by":["",""],"facts":{"Fresh":9223372036854775807}}`))
	f.Fuzz(func(t *testing.T, head []byte) {
		rec, err := object.DecodeRecord(head)
		if err != nil || rec.Varies != nil {
			return
		}
		o := rec.Object(1)
		if o.Status < 200 || o.Status > 599 || len(o.Vary) != len(o.By) {
			t.Fatalf("%+v", o)
		}
		o.Selects(nil, []string{"de"})
		o.Cost()
		o.Stale(time.Now())
		again, err := o.Encode("", 0)
		if err != nil {
			return // a time that JSON has not: it is never written
		}
		if _, err := object.DecodeRecord(again); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
	})
}

// What is not UTF-8 comes back from the slower tiers byte for byte.
func TestRecordOfBytes(t *testing.T) {
	for _, text := range []string{"caf\xe9", "caf\u00e9", "\xff\u1234", "plain"} {
		o := &object.Object{
			Status: 200, Fields: object.FieldsOf(http.Header{"X-Name": {text, "b"}}), Vary: []string{"X-Kind"}, By: []string{text},
			Owner: purge.Object{URL: "http://a.example/?" + text, Host: "a.example", Tags: []string{text}},
		}
		head, err := o.Encode("", 0)
		if err != nil {
			t.Fatal(err)
		}
		rec, err := object.DecodeRecord(head)
		if err != nil {
			t.Fatal(err)
		}
		got := rec.Object(0)
		if got.Get("X-Name") != text || got.By[0] != text || got.Owner.URL != o.Owner.URL || got.Owner.Tags[0] != text {
			t.Errorf("%q came back as %q", text, got.All("X-Name"))
		}
	}
	if _, err := object.DecodeRecord([]byte(`{"v":1,"status":200,"bytes":true,"url":"\u1234"}`)); err == nil {
		t.Error("a byte of 0x1234")
	}
}
