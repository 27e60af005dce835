package jpeg

import (
	"bytes"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestLibjpeg decodes what libjpeg writes, by way of the command vips.
func TestLibjpeg(t *testing.T) {
	vips, err := exec.LookPath("vips")
	if err != nil {
		t.Skip("vips is not installed, which would write the pictures")
	}
	dir := t.TempDir()
	source := filepath.Join(dir, "source.png")
	f, err := os.Create(source)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := png.Encode(f, drawn(333, 217)); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) {
		t.Helper()
		if out, err := exec.Command(vips, arguments...).CombinedOutput(); err != nil {
			t.Skipf("vips %s: %v: %s", strings.Join(arguments, " "), err, out)
		}
	}
	for _, options := range []string{
		"-Q 75",
		"-Q 95 --subsample-mode off",
		"-Q 30 --optimize-coding",
		"-Q 75 --interlace",
		"-Q 98 --interlace --subsample-mode off",
		"-Q 75 --restart-interval 5",
		"-Q 75 --restart-interval 7 --interlace",
		"-Q 75 --interlace --trellis-quant --optimize-scans --overshoot-deringing",
	} {
		t.Run(options, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "target.jpg")
			run(append([]string{"jpegsave", source, target}, strings.Fields(options)...)...)
			data, err := os.ReadFile(target)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(options, "--restart-interval 7 --interlace") {
				// image/jpeg does not read this one: the same without restarts
				// must be the same.
				run(append([]string{"jpegsave", source, target}, "-Q", "75", "--interlace")...)
				other, err := os.ReadFile(target)
				if err != nil {
					t.Fatal(err)
				}
				matchOther(t, data, other)
			} else {
				matchStd(t, data)
			}
			if _, err := Decode(data, Options{Whole: true}); err != nil {
				t.Error(err)
			}
			// The last quarter of the data is missing: the rest is read at any
			// scale, in time bounded by the data.
			for _, denominator := range []int{1, 2, 4, 8} {
				if _, err := Decode(data[:len(data)*3/4], Options{Denominator: denominator}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	t.Run("CMYK", func(t *testing.T) {
		cmyk, target := filepath.Join(dir, "cmyk.v"), filepath.Join(dir, "cmyk.jpg")
		run("icc_export", source, cmyk, "--output-profile", "cmyk")
		run("jpegsave", cmyk, target)
		data, err := os.ReadFile(target)
		if err != nil {
			t.Fatal(err)
		}
		want, err := stdDecode(data)
		if err != nil {
			t.Fatal(err)
		}
		got, err := Decode(data, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := differ(got, want, 4, false); err != nil {
			t.Error(err)
		}
	})
}

// matchOther decodes two files to the same pixels.
func matchOther(t *testing.T, a, b []byte) {
	t.Helper()
	p, err := Decode(a, Options{})
	if err != nil {
		t.Fatal(err)
	}
	q, err := Decode(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.Y.Pix, q.Y.Pix) || !bytes.Equal(p.Cb.Pix, q.Cb.Pix) || !bytes.Equal(p.Cr.Pix, q.Cr.Pix) {
		t.Error("the pixels are different")
	}
}
