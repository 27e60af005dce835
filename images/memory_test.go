package images

import (
	"fmt"
	"testing"
	"time"

	"millrace/internal/bytesize"
	"millrace/internal/process/gogc"
)

// The budget that nobody has set follows the machine, within bounds; one that is
// set counts.
func TestMemory(t *testing.T) {
	if m := (Options{}).memory(); m < leastMemory || m > mostMemory || gogc.Memory() > memoryShare*mostMemory && m != mostMemory {
		t.Errorf("%d of %d", m, gogc.Memory())
	}
	if m := (Options{Memory: 64 << 20}).memory(); m != 64<<20 {
		t.Errorf("%d", m)
	}
}

// Images that need too much memory are logged once for all: one setting mends
// it.
func TestTooBigIsLoggedOnce(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}, Memory: bytesize.Size(minMemory)}, newFake(bothEmbedded))
	for i := range 3 {
		name := fmt.Sprintf("%d.jpg", i)
		r.write(name, photo(t, 1500, 1500, i), time.Hour)
		if res := r.get("/"+name, takesWebP); status(res) != "original; reason=memory" {
			t.Errorf("%q", status(res))
		}
	}
	if n := r.logged.lines(); n != 1 {
		t.Errorf("%d lines", n)
	}
	if n := counted(&r.meters.Failed, "memory"); n != 3 {
		t.Errorf("%d failures are counted", n)
	}
}
