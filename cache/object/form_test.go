package object_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"millrace/cache/object"
	"millrace/cache/purge"
	"millrace/cache/rfc9111"
)

// form is the head of an answer as the first form has it.
const form = `{"v":1,"status":200,"header":{"Etag":["\"1\""]},` +
	`"facts":{"Received":"2026-05-04T03:02:01Z","Age":1000000000,"Fresh":60000000000,"Source":"max-age","StaleWhileRevalidate":2,"StaleIfError":3,"NoStale":true,"NoCache":true},` +
	`"vary":["Accept"],"by":["text/html"],"url":"http://a.example/","host":"a.example","tags":["news"],"at":7,"epoch":"e","rule":"r","stamp":9}`

// TestForm: the head of an answer is read, and written, as it always was: machines of two
// versions share a Redis while they are upgraded. Another form needs another number.
func TestForm(t *testing.T) {
	o := &object.Object{
		Status: 200, Fields: object.FieldsOf(http.Header{"Etag": {`"1"`}}), Vary: []string{"Accept"}, By: []string{"text/html"}, Rule: "r", Stamp: 9,
		Owner: purge.Object{URL: "http://a.example/", Host: "a.example", Tags: []string{"news"}, At: 7},
		Facts: rfc9111.Facts{
			Received: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Age: time.Second, Fresh: time.Minute, Source: "max-age",
			StaleWhileRevalidate: 2, StaleIfError: 3, NoStale: true, NoCache: true,
		},
	}
	if head, err := o.Encode("e", 0); err != nil || string(head) != form {
		t.Errorf("it is written as\n%s\nand was\n%s\n%v", head, form, err)
	}
	rec, err := object.DecodeRecord([]byte(form))
	if err != nil {
		t.Fatal(err)
	}
	got := rec.Object(0)
	if diff := cmp.Diff(o.Facts, got.Facts); diff != "" || rec.Epoch != "e" || got.Status != 200 || got.Stamp != 9 || got.Rule != "r" {
		t.Errorf("%+v %s", rec, diff)
	}
	if diff := cmp.Diff(o.Owner, got.Owner); diff != "" {
		t.Error(diff)
	}
	if rec, err := object.DecodeRecord([]byte(`{"v":1,"varies":[["Accept"]]}`)); err != nil || len(rec.Varies) != 1 {
		t.Errorf("%+v, %v", rec, err)
	}
	if _, err := object.DecodeRecord([]byte(strings.Replace(form, `"v":1`, `"v":2`, 1))); err == nil {
		t.Error("a head of the next form is read")
	}
}
