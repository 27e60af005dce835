package frame_test

import (
	"slices"
	"strings"
	"testing"
	"unsafe"

	"millrace/websocket/frame"
)

func TestWalker(t *testing.T) {
	stream := "\x81\x05Hello" + // text
		"\x01\x00" + // an empty first fragment
		"\x89\x02hi" + // a ping between
		"\x80\x81abcdx" + // masked, the last fragment
		"\x82\x7e\x01\x00" + strings.Repeat("b", 256) +
		"\x8a\x00" + // an empty pong
		"\x88\x02\x03\xe8" // close
	for step := 1; step <= len(stream); step++ {
		var w frame.Walker
		frames := 0
		var between []int
		for at := 0; at < len(stream); at += step {
			if w.Closed() {
				t.Fatalf("step %d: closed at %d", step, at)
			}
			n, err := w.Walk([]byte(stream[at:min(at+step, len(stream))]))
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			frames += n
			if w.Between() {
				between = append(between, min(at+step, len(stream)))
			}
		}
		if frames != 4 || !w.Closed() {
			t.Errorf("step %d: %d frames, want 4; closed %v", step, frames, w.Closed())
		}
		ends := slices.DeleteFunc([]int{7, 9, 13, 20, 280, 282, 286}, func(end int) bool {
			return end%step != 0 && end != len(stream)
		})
		if !slices.Equal(between, ends) {
			t.Errorf("step %d: between frames at %v, want %v", step, between, ends)
		}
	}
}

func TestWalkerStops(t *testing.T) {
	for step := 1; step <= 2; step++ {
		var w frame.Walker
		if !w.Between() {
			t.Error("the beginning is not between frames")
		}
		stream := []byte("\x81\x01a\x83\x00\x81\x00")
		var err error
		for err == nil && len(stream) > 0 {
			_, err = w.Walk(stream[:min(step, len(stream))])
			stream = stream[min(step, len(stream)):]
		}
		if codeOf(t, err) != frame.ProtocolError || w.Between() || w.Closed() {
			t.Errorf("error %v, between %v", err, w.Between())
		}
		if _, err := w.Walk([]byte("\x81\x00")); codeOf(t, err) != frame.ProtocolError || w.Between() {
			t.Errorf("it goes on: error %v, between %v", err, w.Between())
		}
	}
}

func TestWalkerCountsWhatCameBeforeTheError(t *testing.T) {
	var w frame.Walker
	if n, err := w.Walk([]byte("\x81\x00\x82\x00\xf2")); n != 2 || codeOf(t, err) != frame.ProtocolError {
		t.Errorf("%d frames, error %v", n, err)
	}
}

// TestSizes guards what every connection has.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(frame.Walker{}); n > 24 {
		t.Errorf("a Walker has %d bytes", n)
	}
	if n := unsafe.Sizeof(frame.UTF8{}); n > 4 {
		t.Errorf("a UTF8 has %d bytes", n)
	}
	if n := unsafe.Sizeof(frame.Params{}); n > 2 {
		t.Errorf("Params have %d bytes", n)
	}
}

// FuzzWalker compares a walk in steps with one Parse after the other.
func FuzzWalker(f *testing.F) {
	f.Add([]byte("\x81\x05Hello\x89\x00\x88\x02\x03\xe8"), []byte{1, 2, 3})
	f.Add([]byte("\x82\xfe\x00\x80abcd"), []byte{4, 1})
	f.Add([]byte("\x82\x00\x83\x00"), []byte{})
	f.Fuzz(func(t *testing.T, stream, steps []byte) {
		var w frame.Walker
		frames, at := 0, 0
		var failure error
		for at < len(stream) && failure == nil {
			step := len(stream) - at
			if len(steps) > 0 {
				step = min(step, int(steps[0]))
				steps = steps[1:]
			}
			var n int
			n, failure = w.Walk(stream[at : at+step])
			frames += n
			at += step
			checkWalk(t, stream[:at], &w, frames, failure)
		}
	})
}

// checkWalk holds a walker that has seen stream against Parse.
func checkWalk(t *testing.T, stream []byte, w *frame.Walker, frames int, failure error) {
	t.Helper()
	want, closed := 0, false
	for len(stream) > 0 {
		h, n, err := frame.Parse(stream)
		if (err != nil) != (failure != nil) && err != nil {
			t.Fatalf("error %v, want %v", failure, err)
		}
		if err != nil || n == 0 || h.Length > int64(len(stream)-n) {
			break
		}
		stream = stream[n+int(h.Length):]
		if !h.Op.IsControl() {
			want++
		}
		closed = closed || h.Op == frame.Close
	}
	_, _, err := frame.Parse(stream)
	if frames != want || w.Closed() != closed || w.Between() != (len(stream) == 0) || (failure != nil) != (err != nil) {
		t.Fatalf("%d frames, closed %v, between %v, error %v; want %d, %v, %d bytes left, %v",
			frames, w.Closed(), w.Between(), failure, want, closed, len(stream), err)
	}
}
