package images

import (
	"fmt"
	"testing"
	"time"

	"millrace/static/original"
)

// However little memory there is for how many originals: each is converted, and
// what is known of them keeps to the limit.
func TestSmallMemory(t *testing.T) {
	const limit = 64 << 10
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}, Wait: 5 * time.Second}, newFake(bothTools))
	memory := original.NewMemory(limit)
	r.table.memory = memory.Join()
	memory.Join().Add(limit / 2) // the folder has its part
	large := append(photo(t, 64, 48, 1), make([]byte, 2_000)...)
	const originals = 120 // their records alone would take more than the part
	for i := range originals {
		name := fmt.Sprintf("%d.jpg", i)
		r.write(name, large, time.Hour)
		if s := status(r.get("/"+name, takesWebP)); s != "webp" {
			t.Fatalf("original %d: %q", i, s)
		}
	}
	for _, name := range []string{"/119.jpg", "/0.jpg", "/0.jpg"} {
		if s := status(r.get(name, takesWebP)); s != "webp" {
			t.Errorf("%s again: %q", name, s)
		}
	}
	if n := r.converter.count(); n != originals {
		t.Errorf("%d conversions of %d originals", n, originals)
	}
	if over := r.table.memory.Excess(); over > recordBytes+variantBytes+answerBytes+heldBytes {
		t.Errorf("%d bytes too many are held", over)
	}
}
