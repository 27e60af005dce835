package images

import (
	"os"
	"testing"
)

func TestHighWater(t *testing.T) {
	for text, want := range map[string]uint64{
		"Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1024 kB\n": 2 << 20,
		"Name:\tzombie\n":     0,
		"Name:\tx\nVmHWM:\tx": 0,
		"":                    0,
	} {
		if got := highWater([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	if most := watchCommand(os.Getpid())(); most == 0 {
		t.Error("nothing is known of this process")
	}
}
