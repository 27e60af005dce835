//go:build linux

package disk

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// FuzzHeader reads anything as an object's file: it is refused, or it is what
// the header says and has its checksums right.
func FuzzHeader(f *testing.F) {
	dir := f.TempDir()
	d := openTest(f, dir, 1<<20)
	for _, body := range []string{"", "body", string(make([]byte, 5000))} {
		if err := putBytes(d, "key", -1, []byte("head"), []byte(body)); err != nil {
			f.Fatal(err)
		}
		b, err := os.ReadFile(filepath.Join(dir, idOf("key").path()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[:len(b)-1])
		f.Add(b[:headerSize])
		huge := bytes.Clone(b)
		copy(huge[16:], "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff")
		f.Add(huge)
	}
	path := filepath.Join(dir, "fuzzed")
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		d.reading.Add(1)
		r := &reader{disk: d, file: file}
		defer r.Close()
		if err := r.readHead(); err != nil {
			if !errors.Is(err, errDamaged) {
				t.Fatal(err)
			}
			return
		}
		if r.end() > int64(len(b)) || len(r.key) != r.keySize || len(r.Head) != r.headSize || r.Size != r.size {
			t.Fatalf("header %+v of a file of %d bytes", r.header, len(b))
		}
		again := bytes.Clone(b)
		r.encode(again)
		if !bytes.Equal(again[:44], b[:44]) {
			t.Fatalf("header %x was written as %x", again[:headerSize], b[:headerSize])
		}
		if err := r.verify(t.Context()); err == nil && checksum(0, b[r.Offset:r.Offset+r.Size]) != r.bodySum {
			t.Fatal("a body with a wrong checksum was accepted")
		}
	})
}

// FuzzIndex reads anything as an index: what is read, and no more, is written
// back the same.
func FuzzIndex(f *testing.F) {
	whole := []byte(indexMagic)
	for n := range 5 {
		whole = appendRecord(whole, idOf(string(rune(n))), int64(n))
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-3])
	f.Add(whole[:4])
	f.Add([]byte{})
	f.Add(append(bytes.Clone(whole), make([]byte, recordSize)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		back := []byte(indexMagic)
		err := readIndex(bytes.NewReader(b), func(records []byte) error {
			for ; len(records) > 0; records = records[recordSize:] {
				i, size, ok := parseRecord(records[:recordSize])
				if !ok || size < 0 || size > maxBlocks {
					t.Fatalf("record %x: %d blocks, %v", records[:recordSize], size, ok)
				}
				back = appendRecord(back, i, size)
			}
			return nil
		})
		switch {
		case err == nil && !bytes.Equal(back, b):
			t.Fatalf("%x was read as %x", b, back)
		case err != nil && !errors.Is(err, errDamaged):
			t.Fatal(err)
		case err != nil && len(back) > len(indexMagic) && !bytes.HasPrefix(b, back):
			t.Fatalf("of %x was read %x", b, back)
		}
		d := Store{}
		if d.loadFrom(context.Background(), bytes.NewReader(b)); d.used < 0 {
			t.Fatalf("%d blocks", d.used)
		}
	})
}

// FuzzState reads anything as a state.
func FuzzState(f *testing.F) {
	f.Add("millrace state 1 1700000000000000000 0b3c1f0e-7e0d-4d58-8f3e-0c8a3a0e9d11\n")
	f.Add("millrace state 1 5 -\n")
	f.Add("millrace state 2 5 -\n")
	f.Add("")
	f.Add("millrace state 1 99999999999999999999999 x")
	f.Fuzz(func(t *testing.T, text string) {
		if s := parseState(text); s.boot == "" && s != (state{}) {
			t.Fatalf("half a state: %+v", s)
		}
	})
}
