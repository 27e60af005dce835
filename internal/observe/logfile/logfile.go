// Package logfile writes log lines where the operator wants them: to a file that is
// rotated by size, by time, or both; or to a daemon that collects them ([Sender]).
//
// Rotating renames the file to its name with the time, opens a new one under the
// old name, and compresses the old one in the background. Two processes may write
// to the same file, as during an upgrade: each writes under a shared lock of the
// file (flock), and looks whether the name still stands for it; who rotates has the
// exclusive lock. So a file is rotated once, and nothing is written to it after it
// was renamed. Another program may rename the file as well: what is written after
// that goes to a new one.
//
// A File is for one goroutine; compressing has one of its own, which Close waits for.
package logfile

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"millrace/internal/bytesize"
)

// Options say when a file is rotated. The zero value is never.
type Options struct {
	// Size is how large the file may become, like 100MiB.
	Size bytesize.Size `yaml:"size"`
	// Every is a time after which a new file begins: 24h at midnight of the machine's
	// time zone, 1h on the hour. A file in which nothing was written stays.
	Every time.Duration `yaml:"every"`
	// Keep is how many old files are kept; older ones are removed. Default 14.
	Keep int `yaml:"keep"`
	// KeepFor is how long old files are kept, like 720h for 30 days, within keep.
	// Default: as long as keep allows.
	KeepFor time.Duration `yaml:"keep_for"`
	// Plain leaves old files uncompressed. Otherwise they are compressed with gzip.
	Plain bool `yaml:"plain"`
}

const (
	defaultKeep = 14
	// maxKeep bounds how many old files are looked at.
	maxKeep = 10_000

	// leastSize and leastEvery keep a mistake from making a file for every few lines.
	leastSize  = 64 << 10
	leastEvery = time.Minute
	mostEvery  = 366 * 24 * time.Hour

	// mode is that of the files: their group may read them.
	mode = 0o640
)

// On reports whether anything is ever rotated.
func (o Options) On() bool { return o.Size > 0 || o.Every > 0 }

// Check returns what is wrong with the options, by the key it is wrong with.
func (o Options) Check() map[string]error {
	faults := map[string]error{}
	if o.Size > 0 && o.Size < leastSize {
		faults["size"] = fmt.Errorf("%v is less than a moment's lines: at least %v", o.Size, bytesize.Size(leastSize))
	}
	if o.Every != 0 && (o.Every < leastEvery || o.Every > mostEvery) {
		faults["every"] = fmt.Errorf("%v: from %v to %v, like 24h", o.Every, leastEvery, mostEvery)
	}
	if o.Keep < 0 || o.Keep > maxKeep {
		faults["keep"] = fmt.Errorf("%d: from 1 to %d", o.Keep, maxKeep)
	}
	if o.KeepFor < 0 {
		faults["keep_for"] = errors.New("it must be longer than nothing, like 720h")
	}
	if !o.On() && o != (Options{}) {
		faults["size"] = errors.New("say when the file is rotated: by size, like 100MiB, by every, like 24h, or both")
	}
	return faults
}

// File is an open log file.
type File struct {
	o    Options
	path string
	file *os.File
	old  *keeper
}

// Open opens a file for appending, and makes it with mode 0640. Old files that were
// not compressed before are from now on. fail is told, from another goroutine, why
// that does not work; nil: nobody.
func Open(path string, o Options, fail func(error)) (*File, error) {
	if o.On() && !canRotate {
		return nil, errors.New("rotating log files does not work on this system: leave out log.rotate")
	}
	if fail == nil {
		fail = func(error) {}
	}
	o.Keep = cmp.Or(o.Keep, defaultKeep)
	f := &File{o: o, path: path}
	var err error
	if f.file, err = open(path); err != nil {
		return nil, err
	}
	if info, err := f.file.Stat(); err == nil && !info.Mode().IsRegular() { // a pipe, a device
		f.o = Options{}
	}
	if f.o.On() {
		f.old = keep(path, f.o, fail)
	}
	return f, nil
}

func open(path string) (*os.File, error) {
	f, err := os.OpenFile(path, openFlags(path), mode)
	if err != nil {
		return nil, fmt.Errorf("opening the log file: %w", err)
	}
	return f, nil
}

// Write appends lines, to a new file if it is time for one. That the old file cannot
// be rotated is an error of its own kind ([RotateError]); the lines are written then.
func (f *File) Write(lines []byte) (n int, err error) {
	if f.old == nil {
		return f.file.Write(lines)
	}
	rotated := f.turn(len(lines))
	if err := f.follow(); err != nil {
		return 0, err
	}
	defer unlock(f.file)
	if n, err = f.file.Write(lines); err != nil {
		return n, err
	}
	return n, rotated
}

// RotateError says that a log file could not be rotated. What was to be written is.
type RotateError struct{ err error }

// Error implements error.
func (e *RotateError) Error() string {
	return fmt.Sprintf("rotating the log file: %v; it goes on growing", e.err)
}

// Unwrap is the cause.
func (e *RotateError) Unwrap() error { return e.err }

// attempts bounds how often the file is opened again because another process has
// just rotated it.
const attempts = 4

// follow locks the file that the path stands for, having opened it if that is
// another one by now.
func (f *File) follow() error {
	for range attempts {
		lock(f.file)
		if f.current() {
			return nil
		}
		unlock(f.file)
		next, err := open(f.path)
		if err != nil {
			return err
		}
		_ = f.file.Close() // it was written to without buffers
		f.file = next
	}
	lock(f.file) // somebody rotates without end: any file will do
	return nil
}

// current reports whether the path still stands for the open file.
func (f *File) current() bool {
	now, err := os.Stat(f.path)
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	mine, err := f.file.Stat()
	return err != nil || os.SameFile(now, mine)
}

// due reports whether a file is to be rotated before more bytes are written.
func (o Options) due(file fs.FileInfo, more int, now time.Time) bool {
	switch size := file.Size(); {
	case size == 0:
		return false
	case o.Size > 0 && size+int64(more) > int64(o.Size):
		return true
	}
	return o.Every > 0 && period(file.ModTime(), o.Every) != period(now, o.Every)
}

// period numbers the stretches of time that begin at midnight of the zone, and every
// so long after it.
func period(t time.Time, every time.Duration) int64 {
	_, offset := t.Local().Zone()
	return (t.Unix() + int64(offset)) / int64(every/time.Second)
}

// turn rotates the file if it is due and nobody else is at it.
func (f *File) turn(more int) error {
	info, err := f.file.Stat()
	now := time.Now()
	if err != nil || !f.o.due(info, more, now) || !tryExclusive(f.file) {
		return nil // another process writes or rotates: the next write looks again
	}
	defer unlock(f.file)
	if !f.current() {
		return nil // another process was quicker
	}
	if err := rename(f.path, now); err != nil {
		return &RotateError{err}
	}
	f.old.wake()
	return nil
}

// stamp is the time in the names of old files, in UTC.
const stamp = "20060102T150405Z"

// rename gives the file its old name: that of the log, and when it ended.
func rename(path string, now time.Time) error {
	const sameSecond = 100
	for i := range sameSecond {
		to := path + "-" + now.UTC().Format(stamp)
		if i > 0 {
			to += "." + strconv.Itoa(i)
		}
		if taken(to) || taken(to+zipped) {
			continue
		}
		return os.Rename(path, to)
	}
	return fmt.Errorf("%d names like %s are taken", sameSecond, filepath.Base(path)+"-"+now.UTC().Format(stamp))
}

func taken(path string) bool {
	_, err := os.Lstat(path)
	return !errors.Is(err, fs.ErrNotExist)
}

// isOld reports whether a file's name is that of a rotated one of the log called
// base, and when it ended.
func isOld(base, name string) (ended time.Time, compressed, ok bool) {
	rest, found := strings.CutPrefix(name, base+"-")
	if !found {
		return ended, false, false
	}
	rest, compressed = strings.CutSuffix(rest, zipped)
	when, number, numbered := strings.Cut(rest, ".")
	if numbered {
		if _, err := strconv.ParseUint(number, 10, 8); err != nil {
			return ended, false, false
		}
	}
	ended, err := time.Parse(stamp, when)
	return ended, compressed, err == nil
}

// Close closes the file, and ends the work on old files: what is not done yet is
// done when the file is opened again.
func (f *File) Close() error {
	if f.old != nil {
		f.old.close()
	}
	return f.file.Close()
}
