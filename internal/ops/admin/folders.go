package admin

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// FolderVariable is the environment variable that names the folder for admin
// sockets. It is then the only one in which they are made and looked for, so
// that servers with different folders do not see each other.
const FolderVariable = "MILLRACE_RUN_DIR"

// places are where runtime folders may be.
type places struct {
	only string // $MILLRACE_RUN_DIR: no other is used
	xdg  string // $XDG_RUNTIME_DIR
	run  string // /run
	temp string // the folder for temporary files
	uid  int
}

func systemPlaces() places {
	only := os.Getenv(FolderVariable)
	if full, err := filepath.Abs(only); only != "" && err == nil {
		only = full // as it is shown to people in other folders
	}
	return places{only: only, xdg: os.Getenv("XDG_RUNTIME_DIR"), run: "/run", temp: os.TempDir(), uid: os.Getuid()}
}

// folders are the runtime folders in order of preference.
func (p places) folders() []string {
	if p.only != "" {
		return []string{p.only}
	}
	var list []string
	if filepath.IsAbs(p.xdg) { // a relative one must be ignored (XDG Base Directory Specification)
		list = append(list, filepath.Join(p.xdg, "millrace"))
	}
	return append(list, p.shared(), p.private())
}

// shared is the folder of a service: only root can make it, so its sockets can
// be trusted whoever owns it.
func (p places) shared() string { return filepath.Join(p.run, "millrace") }

// prepare makes a runtime folder if it is missing and checks that nobody else
// can put a socket there.
func (p places) prepare(folder string) error {
	if err := os.Mkdir(folder, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return p.check(folder)
}

// RuntimeFolder is where the admin socket goes if no address is named; it is made
// where it is missing. "" where there is none.
func RuntimeFolder() string {
	p := systemPlaces()
	for _, folder := range p.folders() {
		if p.prepare(folder) == nil {
			return folder
		}
	}
	return ""
}

// PrivateFolder is a folder of this user alone in one that others write to, such
// as that for temporary files. It is made where it is missing.
func PrivateFolder(in string) (string, error) {
	p := places{temp: in, uid: os.Getuid()}
	folder := p.private()
	if err := p.prepare(folder); err != nil {
		return "", fmt.Errorf("a folder for temporary files of this user alone: %w", err)
	}
	return folder, nil
}

// private is a folder for this user in that for temporary files.
func (p places) private() string { return filepath.Join(p.temp, fmt.Sprintf("millrace-%d", p.uid)) }

// check reports why a folder cannot be trusted: it must be a folder, not a link
// to one, belong to the user and be writable by nobody else.
func (p places) check(folder string) error {
	info, err := os.Lstat(folder)
	switch {
	case err != nil:
		return err
	case !info.IsDir():
		return fmt.Errorf("%s is not a folder", folder)
	case !ownedBy(info, p.uid):
		return fmt.Errorf("the folder %s belongs to another user", folder)
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("the folder %s can be written by other users (mode %v)", folder, info.Mode().Perm())
	}
	return nil
}

// Find lists the admin sockets of the servers that run and that the user may
// talk to, in the form "unix:/path" that [Options.Listen] takes. Those of
// servers that listen elsewhere are not found. An error names a folder that
// could not be searched; the sockets of the other folders are returned as well.
func Find() ([]string, error) { return systemPlaces().find() }

func (p places) find() ([]string, error) {
	var found []string
	var errs []error
	for _, folder := range p.folders() {
		paths, err := p.search(folder)
		if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
			errs = append(errs, fmt.Errorf("looking for running servers: %w", err))
		}
		for _, path := range paths {
			if alive, err := answers(path); alive && err == nil {
				found = append(found, unixPrefix+path)
			}
		}
	}
	return found, errors.Join(errs...)
}

func (p places) search(folder string) ([]string, error) {
	if folder != p.shared() {
		if err := p.check(folder); err != nil {
			return nil, err
		}
	}
	return sockets(folder)
}
