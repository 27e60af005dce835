package container

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"hash/crc32"
)

const (
	// profilePart is what a segment of JPEG holds of a profile: 65,535 bytes
	// without length, name, number and count (ICC.1:2022, B.4).
	profilePart = 65535 - 2 - 14
	// maxSegment is the content of a segment of JPEG.
	maxSegment = 65535 - 2
)

// JPEG puts metadata into a JPEG that begins with a JFIF segment, as package jpeg
// writes it, behind that.
func JPEG(file []byte, m Metadata) ([]byte, error) {
	if m.empty() {
		return file, nil
	}
	const start = 4 // of the JFIF segment's length
	if len(file) < 20 || !bytes.HasPrefix(file, []byte("\xff\xd8\xff\xe0")) {
		return nil, fmt.Errorf("putting metadata into a JPEG: %w", unsound("it does not begin with a JFIF segment"))
	}
	at := start + int(binary.BigEndian.Uint16(file[start:]))
	if at > len(file) {
		return nil, fmt.Errorf("putting metadata into a JPEG: %w", unsound("its JFIF segment is cut off"))
	}
	var put []byte
	if len(m.EXIF) > 0 {
		if len(m.EXIF) > maxSegment-6 {
			return nil, fmt.Errorf("putting metadata into a JPEG: %d bytes of EXIF are more than a segment holds", len(m.EXIF))
		}
		put = segment(put, 0xE1, "Exif\x00\x00", m.EXIF)
	}
	parts := (len(m.ICC) + profilePart - 1) / profilePart
	if parts > 255 {
		return nil, fmt.Errorf("putting metadata into a JPEG: a profile of %d bytes is more than 255 segments hold", len(m.ICC))
	}
	for n := range parts {
		part := m.ICC[n*profilePart : min((n+1)*profilePart, len(m.ICC))]
		put = segment(put, 0xE2, "ICC_PROFILE\x00"+string([]byte{byte(n + 1), byte(parts)}), part)
	}
	return bytes.Join([][]byte{file[:at], put, file[at:]}, nil), nil
}

// segment appends a marker segment of JPEG (ITU-T T.81, B.1.1.4).
func segment(to []byte, marker byte, name string, body []byte) []byte {
	to = append(to, 0xFF, marker)
	to = binary.BigEndian.AppendUint16(to, uint16(2+len(name)+len(body)))
	return append(append(to, name...), body...)
}

// pngHead is the signature and IHDR.
const pngHead = 8 + 12 + 13

// PNG puts metadata into a PNG, before all its chunks but IHDR.
func PNG(file []byte, m Metadata) ([]byte, error) {
	if m.empty() {
		return file, nil
	}
	if len(file) < pngHead || string(file[:8]) != "\x89PNG\r\n\x1a\n" || string(file[12:16]) != "IHDR" {
		return nil, fmt.Errorf("putting metadata into a PNG: %w", unsound("it does not begin as one"))
	}
	var put []byte
	if len(m.ICC) > 0 {
		// A name, zero, the method (PNG, third edition, 11.3.2.3).
		body := bytes.NewBuffer([]byte("ICC profile\x00\x00"))
		z := zlib.NewWriter(body)
		_, _ = z.Write(m.ICC) // a buffer takes everything
		_ = z.Close()
		put = pngChunk(put, "iCCP", body.Bytes())
	}
	if len(m.EXIF) > 0 {
		put = pngChunk(put, "eXIf", m.EXIF)
	}
	return bytes.Join([][]byte{file[:pngHead], put, file[pngHead:]}, nil), nil
}

// pngChunk appends a chunk of PNG (third edition, 5.3).
func pngChunk(to []byte, kind string, body []byte) []byte {
	to = binary.BigEndian.AppendUint32(to, uint32(len(body)))
	from := len(to)
	to = append(append(to, kind...), body...)
	return binary.BigEndian.AppendUint32(to, crc32.ChecksumIEEE(to[from:]))
}
