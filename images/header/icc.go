package header

import "encoding/binary"

// maxICC is the largest profile that is taken, in bytes. Profiles of printers
// have up to 3 MB; a compressed one could otherwise grow without an end.
const maxICC = 4 << 20

// iccHeader is the length of a profile's header and of its count of tags:
// ICC.1:2022, 7.2 and 7.3.
const iccHeader = 128 + 4

// setICC keeps a profile, or notes that it is broken. Bytes after the length
// that it has by itself are cut off: some writers fill up.
func (i *Info) setICC(profile []byte) {
	i.ICC, i.ProfileSize, i.BrokenICC = nil, 0, true
	if len(profile) < iccHeader || len(profile) > maxICC || string(profile[36:40]) != "acsp" {
		return
	}
	size := binary.BigEndian.Uint32(profile)
	if size < iccHeader || uint64(size) > uint64(len(profile)) {
		return
	}
	i.ICC, i.ProfileSize, i.BrokenICC = profile[:size:size], int(size), false
}
