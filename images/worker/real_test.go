package worker

import (
	"bytes"
	"context"
	"errors"
	"image"
	"image/jpeg"
	"io"
	"strings"
	"testing"

	"golang.org/x/image/webp"

	"millrace/images/codec"
	"millrace/images/convert"
	"millrace/images/header"
)

// An image goes all the way, with workers and without.
func TestReal(t *testing.T) {
	m := image.NewYCbCr(image.Rect(0, 0, 300, 200), image.YCbCrSubsampleRatio420)
	for i := range m.Y {
		m.Y[i] = byte(i*7 ^ i>>6)
	}
	var file bytes.Buffer
	if err := jpeg.Encode(&file, m, nil); err != nil {
		t.Fatal(err)
	}
	inWorker := newPool(t, Options{Level: "embedded"}, "real")
	here, err := New(t.Context(), Options{Level: "embedded"})
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range map[string]*Pool{"in a worker": inWorker, "in this process": here} {
		a := p.Abilities()
		if a.Level != "embedded" || a.Formats[codec.WebP].Level != "embedded" || a.Formats[codec.WebP].By == "" {
			t.Errorf("%s: %+v", name, a)
		}
		clear(a.Formats) // ours
		src := Source{Reader: bytes.NewReader(file.Bytes()), Size: int64(file.Len())}
		res, err := p.Convert(t.Context(), src, convert.Spec{Format: codec.WebP, Width: 100}, false)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := webp.DecodeConfig(bytes.NewReader(res.Data))
		if err != nil || got.Width != 100 || got.Height != 67 || res.Width != 100 || res.Height != 67 {
			t.Errorf("%s: %+v, %v; the result says %d × %d", name, got, err, res.Width, res.Height)
		}
		if res.Level != "embedded" || res.Source.Width != 300 || res.Source.Format != header.JPEG || res.CPU <= 0 || res.Wall <= 0 {
			t.Errorf("%s: %+v", name, res.Source)
		}
		if _, err := p.Convert(t.Context(), text("no picture at all"), convert.Spec{Format: codec.WebP}, true); !errors.Is(err, header.ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := p.Convert(t.Context(), Source{Reader: strings.NewReader("short"), Size: 10}, convert.Spec{}, true); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		src.Reader = bytes.NewReader(file.Bytes())
		if _, err := p.Convert(ctx, src, convert.Spec{Format: codec.WebP}, true); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if s := here.Stats(); s.Started != 0 {
		t.Errorf("%+v", s)
	}
	here.Close()
	if _, err := here.Convert(t.Context(), text("x"), convert.Spec{}, false); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}

// Whoever starts a worker by hand is told what it is.
func TestMainByHand(t *testing.T) {
	err := Main(strings.NewReader("hello?\nis anybody there?\n"), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "not by hand") {
		t.Errorf("%v", err)
	}
}
