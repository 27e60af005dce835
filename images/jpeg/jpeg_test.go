package jpeg

import (
	"bytes"
	"image"
	stdjpeg "image/jpeg"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"millrace/images/picture"
)

// stdPictures are the JPEG files among the test pictures of the standard library.
func stdPictures(t testing.TB) map[string][]byte {
	t.Helper()
	pictures := map[string][]byte{}
	for _, pattern := range []string{"src/image/testdata/*.jpeg", "src/image/jpeg/testdata/*.jpeg"} {
		names, err := filepath.Glob(filepath.Join(runtime.GOROOT(), pattern)) //nolint:staticcheck // where else
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			pictures[filepath.Base(name)] = data
		}
	}
	if len(pictures) == 0 {
		t.Skip("no test pictures of the standard library at GOROOT")
	}
	return pictures
}

func TestStd(t *testing.T) {
	for name, data := range stdPictures(t) {
		t.Run(name, func(t *testing.T) {
			want, err := stdjpeg.Decode(bytes.NewReader(data))
			if err != nil {
				t.Skip(err)
			}
			got, err := Decode(data, Options{})
			if err != nil {
				t.Fatal(err)
			}
			compare(t, got, want)
		})
	}
}

func compare(t *testing.T, got *picture.Picture, want image.Image) {
	m, ok := want.(*image.YCbCr)
	if !ok {
		t.Skipf("%T", want)
	}
	n, sum := 0, 0
	for y := range got.Height {
		for x := range got.Width {
			a, b := int(got.Y.Pix[y*got.Y.Stride+x]), int(m.Y[m.YOffset(x, y)])
			d := max(a-b, b-a)
			n = max(n, d)
			sum += d
		}
	}
	t.Logf("%v max %d mean %.4f", m.SubsampleRatio, n, float64(sum)/float64(got.Height*got.Width))
}
