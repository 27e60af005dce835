package codec

// A point says that AVIF of one quality, on libavif's scale, looks like WebP of
// another.
type point struct{ webp, avif int }

// Scales from WebP to AVIF, between whose points lines are drawn. What looks
// the same has the same SSIMULACRA2, in the mean of four photographs of a
// megapixel, with cwebp 1.2.4 -m 4 as the measure:
//
//	WebP                      60     75     80     90
//	SSIMULACRA2             59.2   65.7   71.3   81.1
//	bytes                    319    396    485    784 K
//
//	avifenc 0.11.1 -s 9       45     55     62     68     74     80     87
//	SSIMULACRA2             47.2   62.4   69.0   72.7   76.5   79.5   84.0
//	bytes                    188    324    416    483    565    648    851 K
//	avifenc 0.11.1 -s 6              55            68            80
//	SSIMULACRA2                    65.7          74.6          80.7
//	bytes                           320           455           602 K
//
//	libavif 1.4.2, speed 10   50     60     70     80
//	SSIMULACRA2             62.0   72.3   79.0   84.1
//	bytes                    244    385    536    709 K
//
// So at the same looks AVIF takes 6 to 8 % fewer bytes with the quick avifenc
// 0.11.1, 17 to 22 % with the slow one, and 23 to 30 % with what is built in,
// whose encoder is tuned for such looks; from libavif 1.4 on, the command's is
// taken for that, too. Below 60 and above 90 the lines are a guess.
func scaleOf(tuned bool) [6]point {
	if tuned {
		return [6]point{{1, 20}, {60, 47}, {75, 54}, {80, 59}, {90, 74}, {100, 90}}
	}
	return [6]point{{1, 25}, {60, 53}, {75, 58}, {80, 65}, {90, 82}, {100, 95}}
}

// slower is how much less quality avifenc needs at speed 6 for the same looks.
const slower = 3

// avifQuality is the quality of AVIF, 1 to 100, that looks like quality q of
// WebP.
func avifQuality(q int, tuned bool) int {
	scale := scaleOf(tuned)
	q = min(max(q, scale[0].webp), scale[len(scale)-1].webp)
	i := 1
	for q > scale[i].webp {
		i++
	}
	a, b := scale[i-1], scale[i]
	span := b.webp - a.webp
	return a.avif + ((q-a.webp)*(b.avif-a.avif)+span/2)/span
}
