package purge

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"sync"
)

// journal keeps the purges of a cache with a disk there, so that what was
// purged stays so after a restart. The zero value keeps nothing.
type journal struct {
	mu      sync.Mutex
	f       *os.File
	path    string
	index   *Index
	records int // appended to what Save said
}

// maxRecords bounds what is appended before the file is written anew.
const maxRecords = 100_000

// open reads an earlier run's purges into index and begins a new file. A file
// that cannot be read is not an error: what is on disk is validated before use.
func (j *journal) open(path string, index *Index, log *slog.Logger) error {
	saved, err := os.ReadFile(path)
	if err == nil {
		err = index.Restore(saved)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("the purges of an earlier run cannot be read; what is on disk is validated before it is used", "err", err)
	}
	j.path, j.index = path, index
	return j.renew()
}

// renew writes the file anew, from all that the index knows.
func (j *journal) renew() error {
	f, err := os.OpenFile(j.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC|os.O_APPEND, 0o600)
	if err != nil {
		return fmt.Errorf("keeping purges: %w", err)
	}
	if _, err = f.Write(j.index.Save()); err == nil {
		err = os.Rename(j.path+".new", j.path)
	}
	if err != nil {
		_ = f.Close()
		return fmt.Errorf("keeping purges: %w", err)
	}
	if j.f != nil {
		_ = j.f.Close() // what it says is in the new one
	}
	j.f, j.records = f, 0
	return nil
}

// save is renew for a journal whose file another process may have replaced.
func (j *journal) save() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	return j.renew()
}

func (j *journal) add(list []purged) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil || len(list) == 0 {
		return nil
	}
	if j.records += len(list); j.records > maxRecords {
		return j.renew() // the index has them already
	}
	var b []byte
	for _, p := range list {
		b = append(b, Record(p.selector, p.at)...)
	}
	if _, err := j.f.Write(b); err != nil {
		return fmt.Errorf("keeping a purge: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.f == nil {
		return nil
	}
	err := j.f.Close()
	j.f = nil
	return err
}
