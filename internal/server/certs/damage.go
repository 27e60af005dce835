package certs

import (
	"bytes"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Bounds of the look for damaged files, which is taken when something has failed.
const (
	mostLooked = 20_000   // files
	mostRead   = 64 << 10 // bytes of one: a chain has a few KiB
)

// errEnough ends a walk.
var errEnough = errors.New("enough")

// damaged names the first file of a folder of certificates that a full disk or a
// lost machine has left without its contents, says what to do about it, and is
// empty where there is none.
func damaged(folder string) (found string) {
	looked := 0
	_ = filepath.WalkDir(folder, func(path string, e fs.DirEntry, err error) error {
		if looked++; looked > mostLooked || found != "" {
			return errEnough
		}
		if err == nil && e.Type().IsRegular() {
			if why := damage(path); why != "" {
				found = fmt.Sprintf("%s is %s: %s", path, why, remedy(folder, path))
			}
		}
		return nil
	})
	return found
}

// damage is what is wrong with a file, by what its name says that it holds.
func damage(path string) string {
	wanted := filepath.Ext(path)
	switch wanted {
	case ".pem", ".key", ".crt", ".json", ".lock":
	default:
		return ""
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > mostRead || wanted == ".lock" && time.Since(info.ModTime()) < lockAge {
		return ""
	}
	text, err := os.ReadFile(path)
	block, _ := pem.Decode(text)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ""
	case errors.Is(err, fs.ErrPermission):
		return "not readable for this user"
	case err != nil:
		return "not readable (" + err.Error() + ")"
	case len(bytes.TrimSpace(text)) == 0:
		return "empty"
	case (wanted == ".json" || wanted == ".lock") && !json.Valid(text):
		return "damaged: it is not JSON"
	case wanted != ".json" && wanted != ".lock" && block == nil:
		return "damaged: it is not a PEM file"
	}
	return ""
}

// remedy is what to do about a damaged file.
func remedy(folder, path string) string {
	dir := filepath.Dir(path)
	switch below, _ := filepath.Rel(folder, path); {
	case filepath.Ext(path) == ".lock":
		return "delete it; a process that was ended has left it"
	case strings.HasPrefix(below, "certificates"):
		return "delete the folder " + dir + ", and a new certificate is asked for"
	case strings.Contains(below, string(filepath.Separator)+"users"+string(filepath.Separator)):
		return "delete the folder " + dir + ", and a new account is made"
	}
	return "put it back from a backup, or delete the folder " + dir + ", and what was in it is made anew"
}

// lockAge is from when on a lock that says nothing is nobody's: who makes one writes
// into it at once.
const lockAge = 10 * time.Second

// dropDeadLocks removes locks without contents, for which each name would wait, and
// those that nobody keeps fresh any more: certmagic would say so on the standard
// error, in a format of its own.
func dropDeadLocks(folder string, errorLog *slog.Logger) {
	locks, _ := filepath.Glob(filepath.Join(folder, "locks", "*.lock")) // the pattern is right
	for _, path := range locks {
		why := damage(path)
		if why == "" && stale(path) {
			why = "stale"
		}
		if why != "" && os.Remove(path) == nil {
			errorLog.Warn("a lock that a process has left behind is removed", "file", path, "it is", why)
		}
	}
}

// stale reports whether nobody keeps a lock fresh, as its holder does every 5 s.
func stale(path string) bool {
	text, err := os.ReadFile(path)
	var lock struct{ Created, Updated time.Time }
	if err != nil || json.Unmarshal(text, &lock) != nil {
		return false
	}
	at := lock.Updated
	if at.IsZero() {
		at = lock.Created
	}
	return time.Since(at) > lockAge
}
