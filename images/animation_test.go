package images

import (
	"encoding/binary"
	"slices"
	"strings"
	"testing"
	"time"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
	"millrace/internal/process/servertest"
)

// film is a GIF of n frames of 1000 × 750 pixels, as far as its headers tell.
func film(n int) []byte {
	size := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, 1000), 750)
	file := slices.Concat([]byte("GIF89a"), size, []byte{0x80, 0, 0, 0, 0, 0, 255, 255, 255})
	for range n {
		file = slices.Concat(file, []byte{0x2c, 0, 0, 0, 0}, size, []byte{0, 2, 1, 0, 0})
	}
	return append(append(file, 0x3b), make([]byte, 4000)...)
}

// TestLongAnimation: no minute is spent on an animation that will not be done
// within it.
func TestLongAnimation(t *testing.T) {
	r := newRig(t, Options{NoBest: true, Formats: []string{"webp"}}, newFake(bothTools))
	r.write("short.gif", film(3), time.Hour)
	r.write("long.gif", film(60), time.Hour)
	if res := r.get("/long.gif", takesWebP); status(res) != "original; reason=timeout" {
		t.Errorf("45 megapixels: %q", status(res))
	}
	if n := r.converter.count(); n != 0 {
		t.Errorf("%d conversions", n)
	}
	servertest.Eventually(r.t, "the short one", func() bool { return status(r.get("/short.gif", takesWebP)) == "webp" })
}

// TestAnimationGuess: of what is refused anyway nothing is guessed, and commands take GIFs as they
// are alone.
func TestAnimationGuess(t *testing.T) {
	r := newRig(t, Options{}, newFake(bothTools))
	for i, c := range []struct {
		info    header.Info
		w       wanted
		guessed bool
	}{
		{header.Info{Format: header.GIF, Width: 1000, Height: 1000, Frames: 2}, wanted{format: format{level: "tools"}}, true},
		{header.Info{Format: header.GIF, Width: 1000, Height: 1000, Frames: 1}, wanted{format: format{level: "tools"}}, false},
		{header.Info{Format: header.PNG, Width: 1000, Height: 1000, Frames: 2}, wanted{format: format{level: "tools"}}, true},
		{header.Info{Format: header.GIF, Width: 1000, Height: 1000, Frames: 2}, wanted{spec: convert.Spec{Width: 8}}, true},
	} {
		c.w.Format, c.w.spec.Format = codec.WebP, codec.WebP
		j := r.job(&record{info: &c.info}, c.w)
		if (j.Guess > 0) != c.guessed {
			t.Errorf("%d: a guess of %v", i, j.Guess)
		}
		if tools := strings.Contains(string(j.Class), "tools"); tools != (i < 2) {
			t.Errorf("%d: the class %q", i, j.Class)
		}
	}
}
