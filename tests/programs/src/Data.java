// Live arrays and garbage: arguments are the MiB of live data.
public final class Data {
    static long word(long series, int index) {
        long x = series * 0x9e3779b97f4a7c15L + index;
        x = (x ^ (x >>> 30)) * 0xbf58476d1ce4e5b9L;
        return x ^ (x >>> 27);
    }

    static long[] array(int series) {
        long[] words = new long[series % 50 == 0 ? 16384 : 512];
        for (int index = 0; index < words.length; index++) words[index] = word(series, index);
        return words;
    }

    public static void main(String[] arguments) {
        long bytes = Long.parseLong(arguments[0]) << 20;
        java.util.ArrayList<long[]> all = new java.util.ArrayList<>();
        for (long done = 0; done < bytes; done += all.get(all.size() - 1).length * 8L) all.add(array(all.size()));
        long sum = 0;
        for (int round = 0; round < 2; round++) {
            for (int series = 0; series < all.size(); series++) {
                long[] words = all.get(series);
                for (int index = 0; index < words.length; index++) {
                    if (words[index] != word(series, index)) {
                        System.err.println("wrong: " + series + " " + index);
                        System.exit(9);
                    }
                    sum += words[index];
                }
                // Some move to new memory: what they leave is for the collector.
                if (series % 4 == round) all.set(series, words.clone());
            }
        }
        System.out.println(all.size() + " " + sum);
    }
}
