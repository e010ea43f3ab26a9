import java.util.ArrayDeque;
import java.util.HashMap;

/** Objects that live for different times: a map that is replaced at random, and a queue of young ones. */
public class Heap {
    public static void main(String[] words) {
        int entries = words.length > 0 ? Integer.parseInt(words[0]) : 400000;
        HashMap<Integer, int[]> map = new HashMap<>();
        ArrayDeque<int[]> young = new ArrayDeque<>();
        long seed = 7, sum = 0;
        for (int step = 0; step < entries * 4; step++) {
            seed = seed * 6364136223846793005L + 1442695040888963407L;
            int key = (int) ((seed >>> 33) % entries);
            int[] before = map.put(key, new int[64]);
            sum += before == null ? 1 : before.length;
            young.add(new int[16]);
            if (young.size() > 20000) young.remove();
        }
        System.out.println(sum + map.size() + young.size());
    }
}
