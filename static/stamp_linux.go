package static

import (
	"io/fs"
	"syscall"
)

// identify adds what only the operating system knows: the inode shows that a
// file was replaced, the ctime that it was edited and its date put back.
func (s *stamp) identify(info fs.FileInfo) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ctime = st.Ctim.Nano()
		s.device, s.file = uint64(st.Dev), st.Ino //nolint:unconvert // Dev is 32 bits wide on some
	}
}

// quickStamp is the stamp of a file by its full path, in one system call. It
// does not mind where links lead, so it may only be compared with a stamp that
// was taken through the tree.
func quickStamp(path string) (stamp, bool) {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return stamp{}, false
	}
	return stamp{
		size:    st.Size,
		mtime:   st.Mtim.Nano(),
		ctime:   st.Ctim.Nano(),
		device:  uint64(st.Dev), //nolint:unconvert // Dev is 32 bits wide on some
		file:    st.Ino,
		regular: st.Mode&syscall.S_IFMT == syscall.S_IFREG,
	}, true
}

// hasQuickStamp says that the sweep may use quickStamp.
const hasQuickStamp = true
