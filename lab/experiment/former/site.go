package former

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
)

// A File is one file of the site that embed-vs-disk is measured on. Its
// bytes are the same on every machine and in every run.
type File struct {
	Name     string // within the folder
	Path     string // of its URL
	Size     int    // bytes
	Variable string // in lab/bench/subjects/fileserver/ldflags.go
}

// Site are six small files and one JSON method, whose answer is a file
// where a server has no methods. Sizes are those of a small site's first visit.
func Site() []File {
	return []File{
		{"index.html", "/", 501, "indexHTML"},
		{"test.html", "/test.html", 869, "testHTML"},
		{"favicon-16x16.png", "/favicon-16x16.png", 542, "favicon16"},
		{"favicon-32x32.png", "/favicon-32x32.png", 1126, "favicon32"},
		{"favicon.ico", "/favicon.ico", 15086, "faviconICO"},
		{"assets/js/test.js", "/assets/js/test.js", 634, "testJS"},
		{"stopdiiacity/verify.json", "/stopdiiacity/verify.json", 713, "verifyJSON"},
	}
}

// SitePaths are the URL paths of Site.
func SitePaths() []string {
	var paths []string
	for _, f := range Site() {
		paths = append(paths, f.Path)
	}
	return paths
}

// SizedFile is the file of size bytes that the crossover curve is measured on.
func SizedFile(size int) File {
	name := fmt.Sprintf("size/%d.bin", size)
	return File{Name: name, Path: "/" + name, Size: size}
}

// WriteSite makes files in dir, and leaves those alone that are right already:
// another run may be reading them.
func WriteSite(dir string, files []File) error {
	for _, f := range files {
		name := filepath.Join(dir, filepath.FromSlash(f.Name))
		content := f.Content()
		if have, err := os.ReadFile(name); err == nil && bytes.Equal(have, content) {
			continue
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil { // a server under another account may have to read it
			return fmt.Errorf("making the site: %w", err)
		}
		if err := os.WriteFile(name, content, 0o644); err != nil {
			return fmt.Errorf("making the site: %w", err)
		}
	}
	return nil
}

// Binary reports whether f is not text.
func (f File) Binary() bool {
	switch filepath.Ext(f.Name) {
	case ".html", ".js", ".json":
		return false
	}
	return true
}

// Content is f's text or bytes, exactly f.Size of them.
func (f File) Content() []byte {
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
func (f File) text(head, tail string) []byte {
	words := strings.Fields("sluice pond grain wheel stone flour sack river weir gate beam hopper race miller bread")
	rnd := rand.New(rand.NewPCG(uint64(f.Size), 7)) // repeatable filler, no secret
	var b strings.Builder
	b.WriteString(head)
	for b.Len() < f.Size-len(tail) {
		b.WriteString(words[rnd.IntN(len(words))])
		b.WriteByte(' ')
	}
	return []byte(b.String()[:f.Size-len(tail)] + tail)
}

// noise is what no server can compress, behind a format's magic number.
func (f File) noise(magic string) []byte {
	var key [32]byte
	copy(key[:], f.Name)
	b := make([]byte, f.Size)
	_, _ = io.ReadFull(rand.NewChaCha8(key), b) // it neither ends nor fails
	copy(b, magic)
	return b
}
