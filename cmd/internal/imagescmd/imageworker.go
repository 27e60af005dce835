package imagescmd

// This file starts this program as a worker process that converts images, and
// says what such workers can do.

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"

	"millrace/images/codec"
	"millrace/images/sandbox"
	"millrace/images/worker"
)

// Verb is what the server starts itself with to convert images. It is not a verb
// for people.
const Verb = "images-worker"

// Main converts what comes in on the standard input.
func Main() error { return worker.Main(os.Stdin, os.Stdout) }

// WorkerCommand is how this program is started as a worker; nil where it cannot be
// told.
func WorkerCommand() []string {
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	return []string{self, Verb}
}

// Probe starts a worker to find out what confines it here.
func Probe(ctx context.Context) (sandbox.Report, error) { return worker.Probe(ctx, WorkerCommand()) }

// Writers say who writes which format: "WebP by cwebp 1.2.4, AVIF by avifenc
// 0.11.1".
func Writers(can worker.Abilities) string {
	by := map[string]string{}
	for f, a := range can.Formats {
		by[string(f)] = a.By
	}
	return WrittenBy(by)
}

// WrittenBy is the same for formats by their names.
func WrittenBy(by map[string]string) string {
	var all []string
	for _, f := range slices.Backward(slices.Sorted(maps.Keys(by))) {
		all = append(all, FormatName(f)+" by "+by[f])
	}
	return strings.Join(all, ", ")
}

// FormatName is how a format is written.
func FormatName(f string) string {
	switch codec.Format(f) {
	case codec.WebP:
		return "WebP"
	case codec.AVIF:
		return "AVIF"
	}
	return f
}

// Confined are rows about what keeps the image workers from the rest of the
// machine, and about what does not.
func Confined(report sandbox.Report) (rows [][2]string) {
	if in := report.InForce(); in != "" {
		rows = append(rows, [2]string{"workers", in})
	}
	if not := report.Missing(); not != "" {
		rows = append(rows, [2]string{"", "missing on this machine: " + not})
	}
	return rows
}
