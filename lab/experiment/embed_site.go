package experiment

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A siteFile is one file of the site that embed-vs-disk is measured on. Its
// bytes are the same on every machine and in every run.
type siteFile struct {
	Name     string // within the folder
	Path     string // of its URL
	Size     int    // bytes
	Variable string // in bench/subjects/nethttp-ldflags
}

// siteFiles are six small files and one JSON method, whose answer is a file
// where a server has no methods. Sizes are those of a small site's first visit.
func siteFiles() []siteFile {
	return []siteFile{
		{"index.html", "/", 501, "indexHTML"},
		{"test.html", "/test.html", 869, "testHTML"},
		{"favicon-16x16.png", "/favicon-16x16.png", 542, "favicon16"},
		{"favicon-32x32.png", "/favicon-32x32.png", 1126, "favicon32"},
		{"favicon.ico", "/favicon.ico", 15086, "faviconICO"},
		{"assets/js/test.js", "/assets/js/test.js", 634, "testJS"},
		{"stopdiiacity/verify.json", "/stopdiiacity/verify.json", 713, "verifyJSON"},
	}
}

// sitePaths are the URL paths of siteFiles.
func sitePaths() []string {
	var paths []string
	for _, f := range siteFiles() {
		paths = append(paths, f.Path)
	}
	return paths
}

// curveFile is the file of size bytes that the crossover curve is measured on.
func curveFile(size int) siteFile {
	name := fmt.Sprintf("size/%d.bin", size)
	return siteFile{Name: name, Path: "/" + name, Size: size}
}

// writeSite makes files in dir, and leaves those alone that are right already:
// another run may be reading them.
func writeSite(dir string, files []siteFile) error {
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		content := f.content()
		if have, err := os.ReadFile(name); err == nil && bytes.Equal(have, content) { //nolint:gosec // our own folder
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { //nolint:gosec // a server under another account may have to read it
			return fmt.Errorf("making the site: %w", err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil { //nolint:gosec // likewise
			return fmt.Errorf("making the site: %w", err)
		}
	}
	return nil
}

// overlay writes the file for go build's -overlay that puts files, which lie in
// dir, into the folder that the subjects embed: so megabytes of noise can be in
// an executable without being in the repository.
func overlay(name, dir, into string, files []siteFile) error {
	replace := map[string]string{}
	for _, f := range files {
		at := filepath.FromSlash(f.Name)
		replace[filepath.Join(into, at)] = filepath.Join(dir, at)
	}
	b, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return fmt.Errorf("writing the overlay of the embedded files: %w", err)
	}
	if err := os.WriteFile(name, b, 0o600); err != nil {
		return fmt.Errorf("writing the overlay of the embedded files: %w", err)
	}
	return nil
}

// ldflags put every file into a variable of package main: text as it is,
// pictures in base64, since a flag can hold no zero byte.
func ldflags(files []siteFile, hash string) string {
	var b strings.Builder
	set := func(name, value string) {
		// The go command splits at white space outside quotes and knows no
		// escapes; no text of the site holds this quote (a test sees to it).
		fmt.Fprintf(&b, " -X 'main.%s=%s'", name, value)
	}
	for _, f := range files {
		if f.binary() {
			set(f.Variable, base64.StdEncoding.EncodeToString(f.content()))
		} else {
			set(f.Variable, string(f.content()))
		}
	}
	set("gitHash", hash)
	return "-ldflags=" + b.String()[1:]
}

func (f siteFile) binary() bool {
	switch filepath.Ext(f.Name) {
	case ".html", ".js", ".json":
		return false
	}
	return true
}

// content is f's text or bytes, exactly f.Size of them.
func (f siteFile) content() []byte {
	switch filepath.Ext(f.Name) {
	case ".html":
		return f.text("<!doctype html><html lang=en><meta charset=utf-8><title>A mill</title><body><p>", "</body></html>\n")
	case ".js":
		return f.text("\"use strict\";\nconst note = \"", "\";\n")
	case ".json":
		// As encoding/json writes it, without a new line: the arms that have a
		// method encode it anew for each request.
		return f.text("{\"verified\":true,\"note\":\"", "\"}")
	case ".png":
		return f.noise("\x89PNG\r\n\x1a\n")
	case ".ico":
		return f.noise("\x00\x00\x01\x00")
	}
	return f.noise("")
}

// text fills the room between head and tail with words.
func (f siteFile) text(head, tail string) []byte {
	words := strings.Fields("sluice pond grain wheel stone flour sack river weir gate beam hopper race miller bread")
	rnd := rand.New(rand.NewPCG(uint64(f.Size), 7)) //nolint:gosec // repeatable filler, no secret
	var b strings.Builder
	b.WriteString(head)
	for b.Len() < f.Size-len(tail) {
		b.WriteString(words[rnd.IntN(len(words))])
		b.WriteByte(' ')
	}
	return []byte(b.String()[:f.Size-len(tail)] + tail)
}

// noise is what no server can compress, behind a format's magic number.
func (f siteFile) noise(magic string) []byte {
	var key [32]byte
	copy(key[:], f.Name)
	b := make([]byte, f.Size)
	_, _ = io.ReadFull(rand.NewChaCha8(key), b) // it neither ends nor fails
	copy(b, magic)
	return b
}
