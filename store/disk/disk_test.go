//go:build linux

package disk_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"millrace/store"
	"millrace/store/disk"
	"millrace/store/storetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openDisk(t testing.TB, o disk.Options) *disk.Store {
	t.Helper()
	d, err := disk.Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Errorf("closing the store: %v", err)
		}
	})
	return d
}

func TestDisk(t *testing.T) {
	var o disk.Options
	open := func(t *testing.T) store.Store {
		o = disk.Options{Dir: filepath.Join(t.TempDir(), "made", "here"), Limit: 64 << 20}
		return openDisk(t, o)
	}
	storetest.Run(t, open, func(t *testing.T) store.Store { return openDisk(t, o) })
}

func BenchmarkDisk(b *testing.B) {
	storetest.Bench(b, func(b *testing.B) store.Store { return openDisk(b, disk.Options{Dir: b.TempDir(), Limit: 256 << 20}) })
}

func TestDiskLimitTooSmall(t *testing.T) {
	if _, err := disk.Open(disk.Options{Dir: t.TempDir(), Limit: 1000}); err == nil || !strings.Contains(err.Error(), "at least 1MiB") {
		t.Errorf("error %v", err)
	}
}

func TestDiskInUse(t *testing.T) {
	o := disk.Options{Dir: t.TempDir()}
	d := openDisk(t, o)
	_, err := disk.Open(o)
	if !errors.Is(err, disk.ErrInUse) || !strings.Contains(err.Error(), fmt.Sprintf("process %d:", os.Getpid())) {
		t.Errorf("the second time: %v", err)
	}
	if err := put(d, "key", 1, 10, true); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if err := check(openDisk(t, o), "key"); err != nil {
		t.Error(err)
	}
}

// TestDiskForeign: no file of anyone else is ever touched.
func TestDiskForeign(t *testing.T) {
	dir := t.TempDir()
	mine := filepath.Join(dir, "holiday.jpg")
	if err := os.WriteFile(mine, []byte("x"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := disk.Open(disk.Options{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "holiday.jpg") || !strings.Contains(err.Error(), "give an empty folder") {
		t.Errorf("a folder with a file: %v", err)
	}
	if names := list(t, dir); !slices.Equal(names, []string{"holiday.jpg"}) {
		t.Errorf("it holds %q now", names)
	}
	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "lost+found"), 0o700); err != nil { // the root of a file system
		t.Fatal(err)
	}
	o := disk.Options{Dir: dir, Limit: 1 << 20}
	d := openDisk(t, o)
	if err := put(d, "key", 1, 10, true); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var foreign []string
	for _, name := range []string{"holiday.jpg", "tmp/holiday.jpg", "0/holiday.jpg", "0/00/holiday.jpg", "0/00/" + strings.Repeat("f", 32)} {
		foreign = append(foreign, filepath.Join(dir, name))
		if err := os.MkdirAll(filepath.Dir(foreign[len(foreign)-1]), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(foreign[len(foreign)-1], []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(filepath.Join(dir, "index")); err != nil { // so that it walks
		t.Fatal(err)
	}
	d = openDisk(t, o)
	if err := d.Walk(t.Context(), func(string, []byte, int64) error { return nil }); err != nil {
		t.Error(err)
	}
	if s := d.Stats(); s.Objects != 1 {
		t.Errorf("stats %+v, want 1 object", s)
	}
	for n := range 100 {
		if err := put(d, fmt.Sprint(n), 1, 50_000, true); err != nil {
			t.Error(err)
		}
	}
	for _, f := range foreign {
		if b, err := os.ReadFile(f); err != nil || string(b) != "x" {
			t.Errorf("%s: %q, %v", f, b, err)
		}
	}
}

func list(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestDiskOtherVersion(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "millrace-store"), []byte("millrace store 2\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := disk.Open(disk.Options{Dir: dir}); err == nil || !strings.Contains(err.Error(), "delete this one") {
		t.Errorf("error %v", err)
	}
}

func TestDiskPermissions(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	d := openDisk(t, disk.Options{Dir: dir})
	for n := range 5 {
		if err := put(d, fmt.Sprint(n), 1, 100_000*n, true); err != nil {
			t.Fatal(err)
		}
	}
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := e.Info()
		if err == nil && info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has the mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestDiskSymlinks: a link in the folder leads nowhere.
func TestDiskSymlinks(t *testing.T) {
	base := t.TempDir()
	dir, outside := filepath.Join(base, "store"), filepath.Join(base, "outside")
	o := disk.Options{Dir: dir, Limit: 1 << 20}
	d := openDisk(t, o)
	if err := put(d, "key", 1, 10, true); err != nil {
		t.Fatal(err)
	}
	// Move what is there outside, and put links in its place.
	for _, name := range list(t, dir) {
		if len(name) != 1 {
			continue
		}
		if err := os.Rename(filepath.Join(dir, name), outside); err != nil {
			t.Fatal(err)
		}
	}
	for _, digit := range "0123456789abcdef" {
		if err := os.Symlink(outside, filepath.Join(dir, string(digit))); err != nil {
			t.Fatal(err)
		}
	}
	before, _ := usage(t, base)
	if o, err := d.Get(t.Context(), "key"); err == nil {
		o.Close()
		t.Error("an object was found outside")
	}
	if err := put(d, "key", 2, 10, true); !errors.Is(err, store.ErrFull) {
		t.Errorf("putting an object outside: %v", err)
	}
	if err := d.Delete(t.Context(), "key"); err == nil {
		t.Error("deleting an object outside: no error")
	}
	if after, _ := usage(t, base); after != before {
		t.Errorf("outside there are %d bytes, there were %d", after, before)
	}
}

func TestDiskWants(t *testing.T) {
	d := openDisk(t, disk.Options{Dir: t.TempDir(), Limit: 2 << 20, Smallest: 100, Largest: 200_000})
	for _, c := range []struct {
		size      int
		announced bool
		taken     bool
	}{
		{99, true, false},
		{99, false, false},
		{100, true, true},
		{100, false, true},
		{200_000, true, true},
		{200_000, false, true},
		{200_001, true, false},
		{200_001, false, false},
	} {
		err := put(d, "key", 1, c.size, c.announced)
		if c.taken != (err == nil) || err != nil && !errors.Is(err, store.ErrFull) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// TestDiskHalf: one object cannot push out all others.
func TestDiskHalf(t *testing.T) {
	d := openDisk(t, disk.Options{Dir: t.TempDir(), Limit: 1 << 20})
	if err := put(d, "small", 1, 100_000, true); err != nil {
		t.Fatal(err)
	}
	for _, announced := range []bool{true, false} {
		if err := put(d, "large", 1, 600_000, announced); !errors.Is(err, store.ErrFull) {
			t.Errorf("more than half: %v", err)
		}
		if err := put(d, "large", 1, 400_000, announced); err != nil {
			t.Errorf("less than half: %v", err)
		}
	}
	if err := check(d, "small"); err != nil {
		t.Error(err)
	}
}

func TestDiskSecond(t *testing.T) {
	d := openDisk(t, disk.Options{Dir: t.TempDir(), Second: true, SecondBelow: 10_000})
	for _, size := range []int{100, 9999} {
		for _, announced := range []bool{true, false} {
			key := fmt.Sprint("key", size, announced)
			err := put(d, key, 1, size, announced)
			if !errors.Is(err, store.ErrNotYet) || !errors.Is(err, store.ErrFull) {
				t.Errorf("the first time: %v", err)
			}
			for range 2 {
				if err := put(d, key, 1, size, announced); err != nil {
					t.Errorf("later: %v", err)
				}
			}
		}
	}
	if err := put(d, "large", 1, 10_000, true); err != nil {
		t.Errorf("a large one: %v", err)
	}
	// What was offered long ago is forgotten.
	if err := put(d, "old", 1, 10, true); !errors.Is(err, store.ErrNotYet) {
		t.Fatal(err)
	}
	for n := range 1 << 17 {
		if _, err := d.Create(t.Context(), fmt.Sprint(n), 1); !errors.Is(err, store.ErrNotYet) {
			t.Fatal(n, err)
		}
	}
	if err := put(d, "old", 1, 10, true); !errors.Is(err, store.ErrNotYet) {
		t.Errorf("after 131,072 others: %v", err)
	}
	// What is stored is replaced nevertheless.
	if err := put(d, "large", 1, 10, true); err != nil {
		t.Error(err)
	}
}

// TestDiskOrder: what was not used for longest goes first, also after a start.
func TestDiskOrder(t *testing.T) {
	o := disk.Options{Dir: t.TempDir(), Limit: 1 << 20}
	d := openDisk(t, o)
	const size, fit = 30_000, 28
	for n := range fit {
		if err := put(d, fmt.Sprint(n), 1, size, true); err != nil {
			t.Fatal(err)
		}
	}
	if s := d.Stats(); s.Evicted != 0 {
		t.Fatalf("stats %+v: this test expects that %d objects fit", s, fit)
	}
	there := func() (keys []string) {
		err := d.Walk(t.Context(), func(key string, _ []byte, _ int64) error {
			keys = append(keys, key)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return keys
	}
	if keys := there(); keys[0] != fmt.Sprint(fit-1) || keys[fit-1] != "0" {
		t.Errorf("walked in the order %q, want the newest first", keys)
	}
	if err := check(d, "0"); err != nil { // used
		t.Fatal(err)
	}
	for n := range 5 {
		if err := put(d, fmt.Sprint("new", n), 1, size, true); err != nil {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	d = openDisk(t, o)
	keys := there()
	evicted := 0
	for n := range fit {
		if !slices.Contains(keys, fmt.Sprint(n)) {
			evicted++
			if n == 0 || n > 7 {
				t.Errorf("%d was evicted", n)
			}
		}
	}
	if evicted == 0 || len(keys) != fit+5-evicted {
		t.Errorf("%d were evicted, %d are there", evicted, len(keys))
	}
	if err := put(d, "after", 1, size, true); err != nil {
		t.Fatal(err)
	}
	if slices.Contains(there(), fmt.Sprint(evicted+1)) {
		t.Errorf("%d is there still: the order was lost over the start", evicted+1)
	}
}
