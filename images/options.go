package images

import (
	"time"

	"millrace/images/params"
	"millrace/images/remote"
	"millrace/internal/bytesize"
)

// Options of the job. The zero value converts as most want it.
type Options struct {
	// Formats that are made for browsers that take them: webp, avif. Default
	// both; of those a browser takes, and the original, the smallest is sent.
	Formats []string `yaml:"formats"`
	// Quality of lossy formats, 1 to 100, on the scale of WebP. Default 80.
	Quality int `yaml:"quality"`
	// Extensions of the files that are converted. Default jpg, jpeg, png, gif,
	// webp, bmp; tiff and tif can be added.
	Extensions []string `yaml:"extensions"`
	// OnlyImages refuses files with other extensions, with the answer
	// "File extension not allowed!" and status 400, instead of serving them.
	OnlyImages bool `yaml:"only_images"`
	// KeepCopyright keeps the copyright and the artist of EXIF. All other
	// metadata but the colour profile is left out of variants.
	KeepCopyright bool `yaml:"keep_copyright"`
	// NearLossless allows changes in drawings and screenshots that nobody
	// sees, 1 to 100 (none). Default 60.
	NearLossless int `yaml:"near_lossless"`
	// Engine: auto (the commands cwebp, gif2webp and avifenc where they are
	// installed, else what is built in), tools or embedded. Default auto.
	Engine string `yaml:"engine"`

	// Wait is how long a first visitor waits for a conversion, if it is
	// predicted to be done by then; the original is sent otherwise. Default 250ms.
	Wait time.Duration `yaml:"wait" negative:"never wait"`
	// Workers is how many conversions run at once. Default: the number of CPUs.
	Workers int `yaml:"workers"`
	// Memory is what conversions may take together. Default 512MiB.
	Memory bytesize.Size `yaml:"memory"`
	// Queue is how many conversions may wait. Default 1000.
	Queue int `yaml:"queue"`
	// Prefetch converts everything below the root in the background, at the
	// start and when it changes.
	Prefetch bool `yaml:"prefetch"`
	// Best makes variants again with the most effort when there is nothing
	// else to do. Default true.
	NoBest bool `yaml:"no_best"`

	// Store is the folder for what was converted. Default: one for the root
	// below the user's cache folder.
	Store string `yaml:"store"`
	// StoreSize is the most that the folder may hold. Default 10GiB.
	StoreSize bytesize.Size `yaml:"store_size"`
	// Shared is a bucket that several machines keep variants in:
	// s3://host/bucket/prefix.
	Shared string `yaml:"shared"`

	// MaxMegapixels and MaxSize are the largest pictures that are converted;
	// larger ones are served as they are. Default 50 and 25MiB.
	MaxMegapixels float64       `yaml:"max_megapixels"`
	MaxSize       bytesize.Size `yaml:"max_size"`

	// Params are the sizes that requests may ask for.
	Params params.Options `yaml:"params"`
	// Remote takes the originals from another host instead of a folder.
	Remote *remote.Options `yaml:"remote"`
}
