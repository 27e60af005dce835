package worker

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
)

func TestFrame(t *testing.T) {
	var b bytes.Buffer
	spec := convert.Spec{Format: codec.AVIF, Quality: 70, Width: 3, Fit: convert.Cover, Limits: header.Limits{Megapixels: 1.5}}
	if err := writeFrame(&b, job{Spec: spec}, 5); err != nil {
		t.Fatal(err)
	}
	b.WriteString("hello")
	whole := bytes.Clone(b.Bytes())
	var j job
	n, err := readFrame(&b, &j, 5)
	if err != nil || n != 5 || j.Spec != spec || b.String() != "hello" {
		t.Errorf("%d, %v, %+v, %q left", n, err, j, b.String())
	}
	for cut := range len(whole) - 5 {
		_, err := readFrame(bytes.NewReader(whole[:cut]), &j, 5)
		if !errors.Is(err, io.ErrUnexpectedEOF) && (cut > 0 || !errors.Is(err, io.EOF)) {
			t.Errorf("cut after %d bytes: %v", cut, err)
		}
	}
	if _, err := readFrame(bytes.NewReader(whole), &j, 4); !errors.Is(err, errGarbage) {
		t.Errorf("a body that is too long: %v", err)
	}
	if err := writeFrame(io.Discard, welcome{Priority: strings.Repeat("x", maxHeader)}, 0); err == nil {
		t.Error("a header that is too long was written")
	}
}

// Every sentinel has a name of its own and comes back as itself.
func TestFailure(t *testing.T) {
	names := map[string]bool{}
	for _, k := range kinds() {
		if names[k.name] {
			t.Errorf("%q stands for two errors", k.name)
		}
		names[k.name] = true
		f := newFailure(fmt.Errorf("doing it: %w", k.err))
		for _, other := range kinds() {
			if errors.Is(f, other.err) != (other.name == k.name) {
				t.Errorf("%v is %v: %t", k.err, other.err, errors.Is(f, other.err))
			}
		}
	}
	if f := newFailure(errors.New(strings.Repeat("x", 1<<20))); len(f.Text) > 2*maxText {
		t.Errorf("%d bytes of text", len(f.Text))
	}
}

func FuzzFrame(f *testing.F) {
	for _, head := range []any{hello{}, job{}, answer{Result: &convert.Result{}}} {
		var b bytes.Buffer
		if err := writeFrame(&b, head, 3); err != nil {
			f.Fatal(err)
		}
		f.Add(b.Bytes())
	}
	f.Add([]byte("MRi1\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"))
	f.Fuzz(func(t *testing.T, data []byte) {
		var a answer
		n, err := readFrame(bytes.NewReader(data), &a, maxResult)
		if err == nil && (n < 0 || n > maxResult) {
			t.Errorf("a body of %d bytes", n)
		}
	})
}
