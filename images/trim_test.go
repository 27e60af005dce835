package images

import (
	"fmt"
	"testing"
	"time"

	"millrace/images/convert"
	"millrace/internal/lane"
)

// Descriptors are bounded, and making room voids no answers but those that go.
func TestTrim(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.converter.failing = func([]byte, convert.Spec) error { return convert.ErrNoGain }
	r.write("small.jpg", photo(t, 64, 48, 0), time.Hour)
	r.get("/small.jpg", takesWebP)
	r.converter.failing = nil
	small := r.table.all()[0]
	mark := small.gen.Now()
	large := append(photo(t, 64, 48, 1), make([]byte, 3*heldBytes)...) // half of it is too large to be held
	var first lane.Version
	for i := range maxOpen + 20 {
		name := fmt.Sprintf("%d.jpg", i)
		r.write(name, large, time.Hour)
		if got := status(r.get("/"+name, takesWebP)); got != "webp" {
			t.Fatalf("%s: %q", name, got)
		}
		if i == 0 {
			first = r.table.all()[0].gen.Now()
		}
	}
	r.table.mu.Lock()
	open := r.table.open
	r.table.mu.Unlock()
	if open > maxOpen || open < maxOpen/2 {
		t.Errorf("%d are open, of at most %d", open, maxOpen)
	}
	if !mark.Valid() {
		t.Error("the answer of a record that holds nothing was voided")
	}
	if first.Valid() {
		t.Error("the lane goes on with what was let go")
	}
	if got := status(r.get("/0.jpg", takesWebP)); got != "webp" {
		t.Errorf("what was let go: %q", got)
	}
}
