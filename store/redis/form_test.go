package redis

import (
	"io"
	"testing"
)

// form is an object as the first form has it.
const form = "a body" + "a head" + "\x06\x00\x00\x00" + "mrO\x01"

// TestForm: an object is read as it always was: machines of two versions share a Redis
// while they are upgraded. Another form needs another number.
func TestForm(t *testing.T) {
	o, ok := unframe([]byte(form))
	if !ok {
		t.Fatal("it is not read")
	}
	if body, err := io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size)); err != nil || string(body) != "a body" || string(o.Head) != "a head" {
		t.Errorf("%q, %q, %v", body, o.Head, err)
	}
	if _, ok := unframe([]byte(form[:len(form)-1] + "\x02")); ok {
		t.Error("an object of the next form is read")
	}
}
