package accesslog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"millrace/internal/observe/meter"
)

// open opens a combined log in a new folder; errors of the file fail the test.
func open(t *testing.T) (l *Log, path string, dropped *meter.Counter) {
	t.Helper()
	path, dropped = filepath.Join(t.TempDir(), "access.log"), new(meter.Counter)
	l, err := Open(Options{Format: "combined", File: path}, dropped, func(err error, _ uint64) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return l, path, dropped
}

func numbered(i int) *Record {
	r := example
	r.Target = fmt.Sprint("/", i)
	return &r
}

// targets are the targets of a file's lines.
func targets(t *testing.T, path string) (list []string) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for l := range strings.Lines(string(b)) {
		m := combinedLine.FindStringSubmatch(l)
		if m == nil {
			t.Fatalf("bad line %q", l)
		}
		list = append(list, m[4])
	}
	return list
}

func TestOpenErrors(t *testing.T) {
	dir := t.TempDir()
	for _, o := range []Options{
		{Format: "Combined"},
		{Format: "json", File: dir},
		{Format: "json", File: filepath.Join(dir, "missing", "access.log")},
	} {
		if l, err := Open(o, nil, nil); err == nil {
			t.Errorf("%+v: no error", o)
			l.Close()
		}
	}
}

func TestOff(t *testing.T) {
	for _, name := range []string{"", "off"} {
		l, err := Open(Options{Format: name, File: "/nowhere/at/all"}, nil, nil)
		if l != nil || err != nil {
			t.Errorf("format %q: log %v, error %v; want neither", name, l, err)
		}
		l.Write(&example)
		if err := errors.Join(l.Reopen(), l.Close()); err != nil {
			t.Error(err)
		}
	}
}

func TestFileIsAppendedAndNotPublic(t *testing.T) {
	path := filepath.Join(t.TempDir(), "access.log")
	for range 2 {
		l, err := Open(Options{Format: "combined", File: path}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		l.Write(numbered(1))
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if got := targets(t, path); len(got) != 2 {
		t.Errorf("%d lines, want 2", len(got))
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("the file has mode %v (%v)", info.Mode(), err)
	}
}

// Each connection's lines come out complete and in order, whatever the others do.
func TestConcurrentOrder(t *testing.T) {
	l, path, dropped := open(t)
	const connections, each = 10, 300
	var wg sync.WaitGroup
	for c := range connections {
		wg.Go(func() {
			r := example
			r.Shard = uint32(c)
			for i := range each {
				r.Target = fmt.Sprintf("/%d/%d", c, i)
				l.Write(&r)
			}
		})
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	var next [connections]int
	for _, target := range targets(t, path) {
		var c, i int
		if _, err := fmt.Sscanf(target, "/%d/%d", &c, &i); err != nil {
			t.Fatal(err)
		}
		if i != next[c] {
			t.Fatalf("connection %d: line %d, want %d", c, i, next[c])
		}
		next[c]++
	}
	for c, n := range next {
		if n != each {
			t.Errorf("connection %d: %d lines, want %d", c, n, each)
		}
	}
	if dropped.Load() != 0 {
		t.Errorf("%d lines dropped", dropped.Load())
	}
}

func TestFlushDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, path, _ := open(t)
		for round := range 3 {
			time.Sleep(time.Hour) // nothing to write: nothing may go wrong either
			l.Write(numbered(1))
			time.Sleep(flushDelay)
			synctest.Wait()
			if got := targets(t, path); len(got) != round+1 {
				t.Errorf("%d lines after the delay, want %d", len(got), round+1)
			}
		}
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A shard that is half full is written without waiting for the delay.
func TestHalfFullDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, path, _ := open(t)
		start := time.Now()
		size := 0
		for i := 0; size < shardBytes/2; i++ {
			size += len(line(combined, numbered(i)))
			l.Write(numbered(i))
		}
		synctest.Wait()
		if got := targets(t, path); len(got) == 0 || time.Since(start) != 0 {
			t.Errorf("%d lines after %v, want some at once", len(got), time.Since(start))
		}
		l.Close()
	})
}

func TestWriteAfterCloseIsCounted(t *testing.T) {
	l, path, dropped := open(t)
	l.Write(numbered(1))
	if err := errors.Join(l.Close(), l.Close()); err != nil {
		t.Error(err)
	}
	l.Write(numbered(2))
	if got := targets(t, path); len(got) != 1 || dropped.Load() != 1 {
		t.Errorf("%d lines, %d dropped; want 1, 1", len(got), dropped.Load())
	}
	if l.Reopen() == nil {
		t.Error("a closed log was opened again")
	}
}

func TestReopen(t *testing.T) {
	l, path, dropped := open(t)
	l.Write(numbered(1))
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(l.Reopen(), l.Reopen()); err != nil {
		t.Fatal(err)
	}
	l.Write(numbered(2))

	// A path that cannot be opened leaves the file in use as it is.
	dir := filepath.Dir(path)
	if err := os.Rename(dir, dir+".moved"); err != nil {
		t.Fatal(err)
	}
	if err := l.Reopen(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("reopening in a missing folder: %v", err)
	}
	l.Write(numbered(3))
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := os.Rename(dir+".moved", dir); err != nil {
		t.Fatal(err)
	}
	all := targets(t, path)
	if len(all) < 2 || strings.Join(all[len(all)-2:], "") != "/2/3" {
		t.Errorf("the new file has %v, want it to end in /2 /3", all)
	}
	if len(all) == 2 { // line 1 may be in either, but must be somewhere
		all = append(targets(t, path+".1"), all...)
	}
	if len(all) != 3 || all[0] != "/1" || dropped.Load() != 0 {
		t.Errorf("lines %v, %d dropped", all, dropped.Load())
	}
}

func TestReopenConcurrently(t *testing.T) {
	l, path, dropped := open(t)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 20 {
				if err := l.Reopen(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	const lines = 1000
	for i := range lines {
		l.Write(numbered(i))
	}
	wg.Wait()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got := targets(t, path); len(got) != lines || dropped.Load() != 0 {
		t.Errorf("%d lines, %d dropped; want %d, 0", len(got), dropped.Load(), lines)
	}
}

// withFile is an open log on a file of the test's choice, as Open makes it.
func withFile(t *testing.T, f *os.File, report func(error, uint64)) (*Log, *meter.Counter) {
	t.Helper()
	path, dropped := filepath.Join(t.TempDir(), "log"), new(meter.Counter)
	l, err := Open(Options{Format: "combined", File: path}, dropped, report)
	if err != nil {
		t.Fatal(err)
	}
	to := io.WriteCloser(f)
	l.next.Store(&to)
	return l, dropped
}

// A file that takes nothing costs lines, never a request's time.
func TestFullDropsAndCounts(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	l, dropped := withFile(t, w, func(err error, _ uint64) { t.Error(err) })
	sent := 0
	for dropped.Load() < 100 {
		rec := numbered(sent)
		rec.Shard = uint32(sent)
		l.Write(rec)
		sent++
	}
	read := make(chan int)
	go func() {
		n := 0
		for s := bufio.NewScanner(r); s.Scan(); n++ {
			if !combinedLine.MatchString(s.Text() + "\n") {
				t.Errorf("bad line %q", s.Text())
			}
		}
		read <- n
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if got, want := <-read, sent-int(dropped.Load()); got != want {
		t.Errorf("%d lines written, want the %d that were not dropped", got, want)
	}
}

func TestDiskFull(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system: nothing that plays a full disk")
	}
	synctest.Test(t, func(t *testing.T) {
		var reports []string
		l, dropped := withFile(t, f, func(err error, lost uint64) { reports = append(reports, fmt.Sprint(err, ", lost ", lost)) })
		const rounds = 100
		for i := range rounds {
			l.Write(numbered(i))
			l.Write(numbered(i))
			time.Sleep(time.Second)
		}
		synctest.Wait()
		if len(reports) != 1 || !strings.Contains(reports[0], "no space left on device, lost 2") {
			t.Errorf("%d reports in %d seconds, want 1: %v", len(reports), rounds, reports)
		}
		if dropped.Load() != 2*rounds {
			t.Errorf("%d lines dropped, want %d", dropped.Load(), 2*rounds)
		}
		if err := l.Reopen(); err != nil { // the disk has room again
			t.Error(err)
		}
		for range 2 {
			time.Sleep(wellAfter)
			l.Write(numbered(0))
		}
		if err := l.Close(); err != nil {
			t.Errorf("after the disk has room again: %v", err)
		}
		if dropped.Load() != 2*rounds {
			t.Error("lines were dropped after the disk has room again")
		}
		if len(reports) != 2 || reports[1] != fmt.Sprint("<nil>, lost ", 2*rounds) {
			t.Errorf("reports: %v", reports)
		}
	})
}

func TestCloseTellsOfLostLines(t *testing.T) {
	f, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Skip("no /dev/full on this system: nothing that plays a full disk")
	}
	l, _ := withFile(t, f, nil)
	l.Write(numbered(1))
	if err := l.Close(); err == nil {
		t.Error("closing a log on a full disk gave no error")
	}
}

// After a write that stopped within a line, the next line starts on its own.
func TestTornLine(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	l := &Log{dropped: new(meter.Counter), report: func(error, uint64) {}, out: sink{to: w}}
	var lines []byte
	sent := 0
	for len(lines) < 1<<20 { // more than a pipe holds
		lines = append(lines, line(combined, numbered(sent))...)
		sent++
	}
	if err := w.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
		t.Skip("this system's pipes have no deadline")
	}
	l.writeLines(lines)
	lost := int(l.dropped.Load())
	if lost == 0 || lost == sent {
		t.Fatalf("%d of %d lines lost: the write was not cut", lost, sent)
	}
	read := make(chan []byte)
	go func() {
		b, _ := io.ReadAll(r)
		read <- b
	}()
	w.SetWriteDeadline(time.Time{})
	l.writeLines([]byte("next\n"))
	w.Close()
	got := <-read
	if !bytes.HasSuffix(got, []byte("\nnext\n")) {
		t.Errorf("the next line follows on %q", got[max(0, len(got)-100):])
	}
	whole := 0
	for l := range bytes.Lines(got) {
		if combinedLine.Match(l) {
			whole++
		}
	}
	if whole != sent-lost {
		t.Errorf("%d whole lines, want %d", whole, sent-lost)
	}
}

func TestCloseGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &Log{format: combined, quit: make(chan struct{}), done: make(chan struct{})} // its writer never ends
		start := time.Now()
		if err := l.Close(); err == nil || time.Since(start) != closeTimeout {
			t.Errorf("error %v after %v", err, time.Since(start))
		}
	})
}

// Nobody reads the standard output any more: Go would end the process.
func TestStandardOutputGone(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("no SIGPIPE on this system")
	}
	if os.Getenv("ACCESSLOG_CHILD") != "" {
		childWithoutReader()
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestStandardOutputGone$")
	cmd.Env = append(os.Environ(), "ACCESSLOG_CHILD=1")
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = w, &stderr
	r.Close()
	err = cmd.Run()
	w.Close()
	if !strings.Contains(stderr.String(), "alive, 3 dropped, reported true") {
		t.Errorf("the process ended with %v and said %q", err, &stderr)
	}
}

// childWithoutReader runs in a process whose standard output has no reader.
func childWithoutReader() {
	var dropped meter.Counter
	reported := false
	l, err := Open(Options{Format: "combined", File: "-"}, &dropped, func(error, uint64) { reported = true })
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for i := range 3 {
		l.Write(numbered(i))
	}
	l.Close()
	fmt.Fprintf(os.Stderr, "alive, %d dropped, reported %t\n", dropped.Load(), reported)
}

func TestNoAllocations(t *testing.T) {
	for _, name := range []string{"combined", "common", "json"} {
		l, err := Open(Options{Format: name, File: os.DevNull}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		seconds := int64(0)
		if n := testing.AllocsPerRun(2000, func() {
			seconds++
			l.Write(&Record{
				Time: time.Unix(seconds, 0), Remote: example.Remote, Host: example.Host, Method: "GET",
				Target: example.Target, Proto: example.Proto, UserAgent: "é\n\xff", Status: 200, Bytes: 501,
				Referer: "https://a.test/?token=abc",
			})
		}); n != 0 {
			t.Errorf("%s: a line allocates %v times", name, n)
		}
		l.Close()
	}
}

// TestSecrets: whoever may read a log need not be somebody else for it.
func TestSecrets(t *testing.T) {
	l, path, _ := open(t)
	for _, target := range []string{"/ws?token=s3cret&a=1", "/ws?%74oken=s3cret", "/plain"} {
		l.Write(&Record{
			Time: example.Time, Method: "GET", Target: target, Proto: "HTTP/1.1", Status: 200,
			Referer: "https://a.test/?Access-Token=s3cret", UserAgent: "curl",
		})
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`/ws?token=...&a=1 `, `/ws?%74oken=... `, `GET /plain `, `"https://a.test/?Access-Token=..."`} {
		if !strings.Contains(string(b), want) {
			t.Errorf("no %s in\n%s", want, b)
		}
	}
	if strings.Contains(string(b), "s3cret") {
		t.Errorf("a secret is in\n%s", b)
	}
}
