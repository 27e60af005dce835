package jpeg

import (
	"bytes"
	"fmt"
	stdjpeg "image/jpeg"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// BenchmarkDecode decodes photographs at each scale and by the standard
// library. It takes a drawn image unless JPEG_FILES names files (a pattern).
// cpu-ns/MP is processor time, which a busy machine disturbs least, over the
// megapixels of the file.
func BenchmarkDecode(b *testing.B) {
	files := map[string][]byte{"drawn": encode(b, drawn(1600, 1200), 85)}
	if pattern := os.Getenv("JPEG_FILES"); pattern != "" {
		clear(files)
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			b.Fatalf("JPEG_FILES=%s names no files: %v", pattern, err)
		}
		for _, name := range names {
			data, err := os.ReadFile(name)
			if err != nil {
				b.Fatal(err)
			}
			files[filepath.Base(name)] = data
		}
	}
	for name, data := range files {
		config, err := stdjpeg.DecodeConfig(bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}
		megapixels := float64(config.Width*config.Height) / 1e6
		measure := func(b *testing.B, decode func() error) {
			start := cpuTime(b)
			for b.Loop() {
				if err := decode(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/megapixels, "cpu-ns/MP")
		}
		for _, denominator := range []int{1, 2, 4, 8} {
			b.Run(fmt.Sprintf("%s/1:%d", name, denominator), func(b *testing.B) {
				measure(b, func() error {
					_, err := Decode(data, Options{Denominator: denominator})
					return err
				})
			})
		}
		b.Run(name+"/std", func(b *testing.B) {
			measure(b, func() error {
				_, err := stdjpeg.Decode(bytes.NewReader(data))
				return err
			})
		})
	}
}

// cpuTime is what the process has used, in nanoseconds.
func cpuTime(b *testing.B) int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}
