package disk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"
)

// What is in the folder beside objects and index.
const (
	markerName  = "millrace-store" // says that the folder is ours
	markerFresh = "millrace-store.new"
	lockName    = "lock" // locked while a process has the store open; holds its number
	stateName   = "state"
	stateFresh  = "state.new"
	writingName = "tmp" // objects being written
	// folderBlocks is what marker, lock, state and its successor take.
	folderBlocks = 4

	markerLine = "millrace store 1\n"
	markerText = markerLine + `
The files in this folder are a cache, kept by millrace. While no process uses
the folder, it may be deleted. Other files do not belong here: they are not
counted, and not touched.
`
	stateLine = "millrace state 1 %d %s\n"
)

// state is what one start tells the next.
type state struct {
	// epoch is put into every object. A new one begins with every start of the
	// machine: of an object from an earlier one nobody knows how much had
	// reached the disk, so its body is compared with its checksum first.
	epoch uint64
	// boot is the start of the machine under which the index is right; "-"
	// before the files have been walked.
	boot string
}

// openFolder opens a store; o is complete.
func openFolder(o Options) (*Store, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(o.Dir)
	if err != nil {
		return nil, err
	}
	d := &Store{
		options: o, limit: int64(o.Limit) / blockSize, root: root,
		most: min(maxOpen, descriptors()/4), loaded: make(chan struct{}),
	}
	if o.Second {
		d.first = new(Admission)
	}
	err = d.claim()
	if err == nil {
		err = d.begin()
	}
	if err != nil {
		if d.lock != nil {
			d.lock.Close()
		}
		return nil, errors.Join(err, root.Close())
	}
	return d, nil
}

// claim makes sure that the folder is ours, and nobody else's.
func (d *Store) claim() error {
	ours, err := d.ours()
	if err != nil {
		return err
	}
	if !ours {
		if err := d.adopt(); err != nil {
			return err
		}
	}
	d.lock, err = d.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	switch ok, err := lockFile(d.lock); {
	case err != nil:
		return err
	case !ok:
		who := make([]byte, 20)
		n, _ := d.lock.ReadAt(who, 0)
		return fmt.Errorf("%w by process %s: stop that, or give this one a folder of its own", ErrInUse, strings.TrimSpace(string(who[:n])))
	}
	if err := d.lock.Truncate(0); err != nil {
		return err
	}
	_, err = d.lock.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// ours reports whether the folder has our marker; it is an error if it has
// something else.
func (d *Store) ours() (bool, error) {
	text, err := d.root.ReadFile(markerName)
	switch {
	case err == nil && len(text) == 0:
		// The machine lost power at the first start. File systems with a
		// journal keep the order of names, so where objects are, this is.
		return true, nil
	case err == nil && !strings.HasPrefix(string(text), markerLine):
		return false, fmt.Errorf("%s is not what this version of millrace writes: give another folder, or delete this one", markerName)
	case err == nil:
		return true, nil
	case !errors.Is(err, fs.ErrNotExist):
		return false, err
	}
	folder, err := d.root.Open(".")
	if err != nil {
		return false, err
	}
	defer folder.Close()
	names, err := folder.Readdirnames(4) // three are allowed
	if err != nil && len(names) > 0 {
		return false, err
	}
	for _, name := range names {
		if name != "lost+found" && name != markerFresh && name != lockName {
			return false, fmt.Errorf("it holds files that are not of a store, like %s, which would not be safe here: give an empty folder, or one that does not exist yet", name)
		}
	}
	return false, nil
}

// adopt makes an empty folder ours.
func (d *Store) adopt() error {
	_ = d.root.Chmod(".", 0o700) // it may be of another owner, who knows what they do; the files are 0600
	if err := d.root.WriteFile(markerFresh, []byte(markerText), 0o600); err != nil {
		return err
	}
	return d.root.Rename(markerFresh, markerName)
}

// begin reads what the start before has left, and starts load.
func (d *Store) begin() error {
	if err := d.root.Mkdir(writingName, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := d.sweep(); err != nil {
		return err
	}
	opener, err := newOpener(d.root)
	if err != nil {
		return err
	}
	d.files = &rooted{root: d.root, opener: opener}
	d.index = &index{files: d.files, slack: indexSlack}

	before := d.readState()
	walk := before.boot == "" || before.boot != bootID()
	d.epoch = before.epoch
	if walk {
		d.epoch = max(before.epoch+1, uint64(time.Now().UnixNano()))
		if err := d.writeState("-"); err != nil {
			return errors.Join(err, d.files.close())
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	d.stop = stop
	d.loading = true
	d.start(ctx, walk)
	return nil
}

// sweep removes what a process that ended was writing.
func (d *Store) sweep() error {
	for _, name := range []string{indexFresh, stateFresh, markerFresh} {
		if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	tmp, err := d.root.Open(writingName)
	if err != nil {
		return err
	}
	defer tmp.Close()
	names, err := tmp.Readdirnames(-1) // no more than maxWriters for each end
	if err != nil {
		return err
	}
	for _, name := range names {
		if _, err := strconv.ParseUint(name, 16, 64); err != nil {
			continue // not ours
		}
		if err := d.root.Remove(writingName + "/" + name); err != nil {
			return err
		}
	}
	return nil
}

// readState returns the zero state where there is none that can be read.
func (d *Store) readState() state {
	text, err := d.root.ReadFile(stateName)
	if err != nil {
		return state{}
	}
	return parseState(string(text))
}

func parseState(text string) state {
	var s state
	if n, err := fmt.Sscanf(text, stateLine, &s.epoch, &s.boot); n != 2 || err != nil {
		return state{}
	}
	return s
}

func (d *Store) writeState(boot string) error {
	f, err := d.files.create(stateFresh)
	if err == nil {
		err = d.files.write(f, fmt.Appendf(nil, stateLine, d.epoch, boot), 0)
		f.Close()
	}
	if err == nil {
		err = d.files.rename(stateFresh, stateName)
	}
	if err != nil {
		_ = d.files.remove(stateFresh)
		return fmt.Errorf("writing its state: %w", err)
	}
	return nil
}
