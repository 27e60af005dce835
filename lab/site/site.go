// Package site has what the lab's servers are given to serve: a small site, a page with
// its assets, large files, and a certificate. It is the same on every machine and in
// every run.
package site

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
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

// Small are six small files and one JSON method, whose answer is a file
// where a server has no methods. Sizes are those of a small site's first visit.
func Small() []File {
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

// SmallPaths are the URL paths of Site.
func SmallPaths() []string {
	var paths []string
	for _, f := range Small() {
		paths = append(paths, f.Path)
	}
	return paths
}

// Assets are what the page of the site "page" has beside its HTML: every third a
// script, the others images.
const Assets = 30

// Page are a page and its assets, of 0.6 to 34 KB; the HTML is the first.
func Page() []File {
	files := []File{{Name: "page/index.html", Path: "/page/", Size: 8000}}
	for i := range Assets {
		kind := "png"
		if i%3 == 0 {
			kind = "js"
		}
		name := fmt.Sprintf("page/asset-%d.%s", i, kind)
		files = append(files, File{Name: name, Path: "/" + name, Size: 600 + 40*i*i})
	}
	return files
}

// manyPages are how many pages the site "pages" has.
const manyPages = 2000

// Pages are pages of 0.6 to 4.6 KB, of which no two are equal: equal ones are packed
// once.
func Pages() []File {
	files := make([]File, manyPages)
	for i := range files {
		name := fmt.Sprintf("pages/%d.html", i)
		files[i] = File{Name: name, Path: "/" + name, Size: 600 + 2*i}
	}
	return files
}

// LargePath is the URL path of the large file: long enough that starting and ending
// a download do not count, small enough to stay in the page cache.
const LargePath = "/large.bin"

// WriteParts makes the folder that is served of its parts: "site", the small one;
// "page" and "pages"; "large 64", of so many MiB; "zeros 1024", likewise; "size 512",
// a file of so many bytes.
func WriteParts(dir string, parts []string) error {
	for _, part := range parts {
		kind, amount, _ := strings.Cut(part, " ")
		n, _ := strconv.ParseInt(amount, 10, 64) // 0 where there is none
		var err error
		switch kind {
		case "site":
			err = Write(dir, Small())
		case "page":
			err = Write(dir, Page())
		case "pages":
			err = Write(dir, Pages())
		case "size":
			err = Write(dir, []File{Sized(int(n))})
		case "large":
			err = writeLarge(filepath.Join(dir, LargePath), n<<20)
		case "zeros":
			err = writeZeros(filepath.Join(dir, fmt.Sprintf("zeros-%d.bin", n)), n<<20)
		default:
			err = fmt.Errorf("there is no part %q of a site", part)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// writeLarge makes a large file and waits until it is on the disk: real blocks, since
// a hole would be served from one shared page, and nothing left that the kernel writes
// back while we measure.
func writeLarge(name string, size int64) error {
	return create(name, func(f *os.File) error {
		_, err := io.CopyN(f, rand.NewChaCha8([32]byte{1}), size)
		return errors.Join(err, f.Sync())
	})
}

// writeZeros makes a hole, which the kernel reads as zeros without a disk.
func writeZeros(name string, size int64) error {
	return create(name, func(f *os.File) error {
		err := f.Truncate(size)
		_, readErr := io.Copy(io.Discard, f) // the first reader has the kernel make the pages
		return errors.Join(err, readErr)
	})
}

func create(name string, fill func(*os.File) error) error {
	err := os.MkdirAll(filepath.Dir(name), 0o755)
	if err == nil {
		var f *os.File
		if f, err = os.Create(name); err == nil {
			err = fill(f)
			f.Close()
		}
	}
	if err != nil {
		return fmt.Errorf("making a large file: %w", err)
	}
	return nil
}

// Content is what must be answered to a path of the small site.
func Content(path string) []byte {
	for _, f := range Small() {
		if f.Path == path {
			return f.Content()
		}
	}
	return nil
}

// Sized is the file of size bytes that the crossover curve is measured on.
func Sized(size int) File {
	name := fmt.Sprintf("size/%d.bin", size)
	return File{Name: name, Path: "/" + name, Size: size}
}

// Write makes files in dir, and leaves those alone that are right already:
// another run may be reading them.
func Write(dir string, files []File) error {
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
