import java.util.HashMap;
import java.util.Map;

/** Java: a map of 600,000 objects, made and walked through. */
public class Words {
    public static void main(String[] arguments) {
        Map<Long, String> words = new HashMap<>();
        for (long i = 0; i < 600_000; i++) {
            words.put(i * 7919 % 600_011, "word " + i);
        }
        long letters = 0;
        for (String word : words.values()) {
            letters += word.length();
        }
        System.out.println(words.size() + " words of " + letters + " letters");
    }
}
