//go:build linux

package disk_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"millrace/internal/bytesize"
	"millrace/store"
	"millrace/store/disk"
)

// childVariable names the folder in which a child of a test is to work; the
// child is this test binary, running the same test.
const childVariable = "MILLRACE_STORE_CHILD"

func child(t *testing.T, dir string) *exec.Cmd {
	t.Helper()
	me, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.CommandContext(t.Context(), me, "-test.run=^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), childVariable+"="+dir)
	return c
}

// body that belongs to a head: of that seed and size.
func body(seed uint64, size int) []byte {
	r := rand.NewPCG(seed, uint64(size))
	b := make([]byte, 0, size+8)
	for len(b) < size {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:size]
}

func put(d store.Store, key string, seed uint64, size int, announced bool) error {
	expect := int64(-1)
	if announced {
		expect = int64(size)
	}
	w, err := d.Create(context.Background(), key, expect)
	if err != nil {
		return err
	}
	if _, err := w.Write(body(seed, size)); err != nil {
		_ = w.Abort()
		return err
	}
	return w.Commit(fmt.Appendf(nil, "%s %d %d", key, seed, size))
}

// check reads an object that was made by put.
func check(d store.Store, key string) error {
	o, err := d.Get(context.Background(), key)
	if err != nil {
		return err
	}
	defer o.Close()
	var of string
	var seed uint64
	var size int
	if _, err := fmt.Sscanf(string(o.Head), "%s %d %d", &of, &seed, &size); err != nil || of != key {
		return fmt.Errorf("%s has the head %q", key, o.Head)
	}
	b, err := io.ReadAll(io.NewSectionReader(o.Body, 0, o.Size))
	if err != nil {
		return err
	}
	if !bytes.Equal(b, body(seed, size)) {
		return fmt.Errorf("%s has a body of %d bytes that does not belong to its head %q", key, len(b), o.Head)
	}
	return nil
}

// usage sums up the files below a folder in blocks, those of objects alone and
// all of them.
func usage(t testing.TB, dir string) (objects, all int64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		rounded := (info.Size() + 4095) / 4096 * 4096
		all += rounded
		if rel, _ := filepath.Rel(dir, path); strings.Count(rel, "/") == 2 {
			objects += rounded
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return objects, all
}

const crashLimit = 6 << 20

// TestKill ends a process in the midst of many writes with SIGKILL, again and
// again, and expects that all that can be found is whole, that nothing is left
// over, and that the quota knows of everything.
func TestKill(t *testing.T) {
	if dir := os.Getenv(childVariable); dir != "" {
		writeForever(t, dir)
		return
	}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 1))
	found := 0
	for round := range 6 {
		c := child(t, dir)
		out, err := c.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		commits := 30 + r.IntN(150)
		lines := bufio.NewScanner(out)
		for n := 0; n < commits && lines.Scan(); {
			switch {
			case lines.Text() == "committed":
				n++
			case strings.Contains(lines.Text(), "FAIL"), strings.Contains(lines.Text(), "disk_crash_test"):
				t.Errorf("child: %s", lines.Text())
			}
		}
		_ = c.Process.Kill()
		_, _ = io.Copy(io.Discard, out)
		_ = c.Wait()

		found += examine(t, dir, fmt.Sprint("round ", round))
	}
	if found == 0 {
		t.Error("no object was ever found: this test shows nothing")
	}
}

// examine opens a store after a crash.
func examine(t *testing.T, dir, when string) (found int) {
	t.Helper()
	d, err := disk.Open(disk.Options{Dir: dir, Limit: crashLimit})
	if err != nil {
		t.Fatal(when, err)
	}
	defer d.Close()
	if left, _ := os.ReadDir(filepath.Join(dir, "tmp")); len(left) > 0 {
		t.Errorf("%s: %d unfinished objects are left", when, len(left))
	}
	err = d.Walk(t.Context(), func(key string, _ []byte, _ int64) error {
		found++
		return check(d, key)
	})
	if err != nil {
		t.Errorf("%s: %v", when, err)
	}
	objects, all := usage(t, dir)
	if s := d.Stats(); s.Bytes < objects || s.Bytes > s.Limit || int(s.Objects) < found {
		t.Errorf("%s: stats %+v, with %d objects of %d bytes found", when, s, found, objects)
	}
	if all > crashLimit {
		t.Errorf("%s: %d bytes are on the disk, the limit is %d", when, all, crashLimit)
	}
	return found
}

// writeForever writes until it is killed.
func writeForever(t *testing.T, dir string) {
	d, err := disk.Open(disk.Options{Dir: dir, Limit: crashLimit})
	if err != nil {
		t.Fatal(err)
	}
	for worker := range 4 {
		go func() {
			r := rand.New(rand.NewPCG(uint64(os.Getpid()), uint64(worker)))
			for {
				key := fmt.Sprint("key-", r.IntN(100))
				size := r.IntN(1 << (5 + r.IntN(14))) // most are small
				if err := put(d, key, r.Uint64(), size, r.IntN(2) == 0); err != nil {
					fmt.Println("disk_crash_test: putting", key, err)
				}
				if r.IntN(20) == 0 {
					_ = d.Delete(context.Background(), fmt.Sprint("key-", r.IntN(100)))
				}
				if err := check(d, key); err != nil && !errors.Is(err, store.ErrNotFound) {
					fmt.Println("disk_crash_test: getting", key, err)
				}
				fmt.Println("committed")
			}
		}()
	}
	<-t.Context().Done() // never: it is killed
}

// TestNoSpace has more to write than there is room on the device, in a file
// system of its own in a mount namespace of its own.
func TestNoSpace(t *testing.T) {
	dir := os.Getenv(childVariable)
	if dir == "" {
		runIsolated(t)
		return
	}
	mountSmall(t, dir, 4<<20)
	tooMuch(t, dir, 100, func(int) int { return 100_000 })
}

// TestFileLimit has larger files to write than the process may.
func TestFileLimit(t *testing.T) {
	if dir := os.Getenv(childVariable); dir != "" {
		limitFiles(t, 256<<10)
		tooMuch(t, dir, 20, func(n int) int { return n * 30_000 })
		return
	}
	out, err := child(t, t.TempDir()).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte("--- PASS")) {
		t.Errorf("child: %v\n%s", err, out)
	}
}

// tooMuch puts objects until it meets ErrFull, and expects that nothing is left
// behind, and that the store goes on.
func tooMuch(t *testing.T, dir string, puts int, size func(n int) int) {
	t.Helper()
	o := disk.Options{Dir: filepath.Join(dir, "store"), Limit: bytesize.Size(64 << 20)}
	d := openDisk(t, o)
	full := 0
	for n := range puts {
		err := put(d, fmt.Sprint("key-", n), uint64(n), size(n), n%2 == 0)
		if errors.Is(err, store.ErrFull) {
			full++
		} else if err != nil {
			t.Error(err)
		}
	}
	if full == 0 {
		t.Fatal("nothing was refused: this test shows nothing")
	}
	if left, _ := os.ReadDir(filepath.Join(o.Dir, "tmp")); len(left) > 0 {
		t.Errorf("%d unfinished objects are left", len(left))
	}
	found := 0
	count := func(key string, _ []byte, _ int64) error {
		found++
		return check(d, key)
	}
	if err := d.Walk(t.Context(), count); err != nil {
		t.Error(err)
	}
	objects, _ := usage(t, o.Dir)
	if s := d.Stats(); found == 0 || s.Bytes != objects || s.Objects != int64(found) {
		t.Errorf("stats %+v, found %d objects of %d bytes", s, found, objects)
	}
	for n := range 5 {
		if err := d.Delete(t.Context(), fmt.Sprint("key-", n)); err != nil {
			t.Error(err)
		}
	}
	if err := put(d, "later", 1, 20_000, true); err != nil {
		t.Errorf("once there is room again: %v", err)
	}
	if err := check(d, "later"); err != nil {
		t.Error(err)
	}
}
