//go:build unix

package logfile

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("LOGFILE_CHILD"); path != "" {
		child(path)
		return
	}
	goleak.VerifyTestMain(m)
}

// lines reads a log with all that was rotated.
func lines(t *testing.T, path string) (all []string, files int) {
	t.Helper()
	names, err := filepath.Glob(path + "*")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(name, zipped) {
			z, err := gzip.NewReader(bytes.NewReader(b))
			if err != nil {
				t.Fatal(name, err)
			}
			if b, err = io.ReadAll(z); err != nil {
				t.Fatal(name, err)
			}
		}
		for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
			all = append(all, s.Text())
		}
	}
	return all, len(names)
}

func write(t *testing.T, f *File, text string) {
	t.Helper()
	if n, err := f.Write([]byte(text)); err != nil || n != len(text) {
		t.Fatalf("%d bytes, %v", n, err)
	}
}

func openTest(t *testing.T, path string, o Options) *File {
	t.Helper()
	f, err := Open(path, o, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// settle waits until the keeper has nothing to do.
func settle(t *testing.T, path string, files int) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		names, _ := filepath.Glob(path + "-*")
		plain := 0
		for _, n := range names {
			if !strings.HasSuffix(n, zipped) {
				plain++
			}
		}
		if plain == 0 && len(names) == files {
			return
		}
	}
	names, _ := filepath.Glob(path + "*")
	t.Fatalf("never %d compressed files: %v", files, names)
}

func TestRotatesBySize(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f := openTest(t, path, Options{Size: 100})
	for i := range 10 {
		write(t, f, fmt.Sprintf("line %d %s\n", i, strings.Repeat("x", 52)))
	}
	settle(t, path, 9)
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	all, files := lines(t, path)
	if len(all) != 10 || files != 10 {
		t.Errorf("%d lines in %d files: %q", len(all), files, all)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != mode {
		t.Errorf("the new file: %v %v", info.Mode(), err)
	}
}

// A file of yesterday is rotated before today's first line, also after a restart.
func TestRotatesByTime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	o := Options{Every: 24 * time.Hour}
	f := openTest(t, path, o)
	write(t, f, "yesterday\n")
	write(t, f, "yesterday too\n")
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := os.Chtimes(path, yesterday, yesterday); err != nil {
		t.Fatal(err)
	}
	f.Close()
	f = openTest(t, path, o)
	write(t, f, "today\n")
	write(t, f, "today too\n")
	settle(t, path, 1)
	f.Close()
	if b, err := os.ReadFile(path); err != nil || string(b) != "today\ntoday too\n" {
		t.Errorf("today's file: %q %v", b, err)
	}
	if all, _ := lines(t, path); len(all) != 4 {
		t.Errorf("lines %q", all)
	}
}

func TestPeriods(t *testing.T) {
	zone := time.FixedZone("", 2*3600)
	old := time.Local
	time.Local = zone
	defer func() { time.Local = old }()
	day := 24 * time.Hour
	midnight := time.Date(2026, 5, 6, 0, 0, 0, 0, zone)
	if period(midnight.Add(-time.Second), day) == period(midnight, day) || period(midnight, day) != period(midnight.Add(day-time.Second), day) {
		t.Error("a day does not begin at midnight")
	}
	if period(midnight.Add(time.Hour-1), time.Hour) == period(midnight.Add(time.Hour), time.Hour) {
		t.Error("an hour does not begin on the hour")
	}
}

func TestKeeps(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	for i := range 6 {
		name := path + "-" + time.Now().UTC().Add(-time.Duration(i+1)*time.Hour).Format(stamp)
		if err := os.WriteFile(name, []byte("old\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, other := range []string{"access.log-notes", "access.log-20260101", "access.log.1", "other.log-20260102T150405Z"} {
		if err := os.WriteFile(filepath.Join(dir, other), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	k := &keeper{o: Options{Keep: 4, KeepFor: 3*time.Hour + time.Minute}, path: path}
	if err := k.cleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	left, err := k.list()
	if err != nil || len(left) != 3 {
		t.Errorf("%v left, %v; want 3", left, err)
	}
	for _, f := range left {
		if !f.compressed {
			t.Errorf("%s is not compressed", f.name)
		}
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 3+4 {
		t.Errorf("files of others were touched: %v", entries)
	}
}

// Another program moves the file away, and nobody says so.
func TestMovedByOthers(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f := openTest(t, path, Options{Every: time.Hour, Plain: true})
	write(t, f, "one\n")
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	write(t, f, "two\n")
	f.Close()
	if b, _ := os.ReadFile(path); string(b) != "two\n" {
		t.Errorf("the new file has %q", b)
	}
}

// What cannot be rotated goes on growing, and says so; no line is lost.
func TestCannotRotate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	f := openTest(t, path, Options{Size: 4, Plain: true})
	defer f.Close()
	write(t, f, "one\n")
	// From two seconds before to a minute after, all names are taken by folders.
	for s := -2; s < 60; s++ {
		name := path + "-" + time.Now().UTC().Add(time.Duration(s)*time.Second).Format(stamp)
		for i := range 100 {
			one := name
			if i > 0 {
				one = fmt.Sprint(name, ".", i)
			}
			if err := os.Symlink("nowhere", one); err != nil {
				t.Fatal(err)
			}
		}
	}
	n, err := f.Write([]byte("two\n"))
	if _, failed := errors.AsType[*RotateError](err); n != 4 || !failed {
		t.Errorf("%d bytes, %v", n, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "one\ntwo\n" {
		t.Errorf("the file has %q", b)
	}
}

const childLines = 3000

// child writes to a file that two processes write to and rotate.
func child(path string) {
	f, err := Open(path, Options{Size: 2000, Keep: maxKeep}, func(err error) { fmt.Println(err) })
	if err != nil {
		fmt.Println(err)
		return
	}
	for i := range childLines {
		if _, err := fmt.Fprintf(f, "child %d of %d\n", i, os.Getpid()); err != nil {
			fmt.Println(err)
		}
		if i%64 == 0 {
			time.Sleep(time.Millisecond)
		}
	}
	f.Close()
}

// Two processes write to the same file and both rotate it: each line is there once,
// in a file that was compressed after it was written.
func TestTwoProcesses(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			cmd := exec.Command(os.Args[0])
			cmd.Env = append(os.Environ(), "LOGFILE_CHILD="+path)
			if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s %v", out, err)
			}
		})
	}
	wg.Wait()
	all, files := lines(t, path)
	seen := map[string]int{}
	for _, l := range all {
		seen[l]++
	}
	if len(all) != 2*childLines || len(seen) != 2*childLines || files < 50 {
		t.Errorf("%d lines, %d different, in %d files; want %d", len(all), len(seen), files, 2*childLines)
	}
}

// Several processes tidy the same folder at once, as during an upgrade: each file is
// compressed once, and nobody has anything to complain about.
func TestTidyTogether(t *testing.T) {
	const files, keepers = 100, 4
	dir := t.TempDir()
	path := filepath.Join(dir, "access.log")
	for i := range files {
		name := path + "-" + time.Now().UTC().Add(-time.Duration(i)*time.Hour).Format(stamp)
		if err := os.WriteFile(name, fmt.Appendf(nil, "line %d\n", i), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var all sync.WaitGroup
	for range keepers {
		k := &keeper{o: Options{Keep: files}, path: path} // a lock is that of who has opened the file, not of the process
		all.Go(func() {
			if err := k.cleanUp(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	found, n := lines(t, path)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != files || len(found) != files {
		t.Errorf("%d files, %d read, with %d lines; want %d (%v)", len(entries), n, len(found), files, err)
	}
}

func TestCheck(t *testing.T) {
	for key, o := range map[string]Options{
		"size":     {Size: 1},
		"every":    {Every: time.Second},
		"keep":     {Size: 1 << 20, Keep: -1},
		"keep_for": {Size: 1 << 20, KeepFor: -1},
	} {
		if faults := o.Check(); faults[key] == nil || len(faults) != 1 {
			t.Errorf("%+v: %v", o, faults)
		}
	}
	if (Options{Keep: 3}).Check()["size"] == nil {
		t.Error("keep alone is taken")
	}
	if len((Options{Size: 1 << 20, Every: time.Hour, Keep: 3, KeepFor: time.Hour}).Check()) > 0 {
		t.Error("good options are not")
	}
}
